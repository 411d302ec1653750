// The identity of a base model: one digest over the bytes of every file that
// can change a result.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Returns the SHA-256 over name and SHA-256 of each *.safetensors, *.json and
// *.jinja file directly in the model's folder, by name. Reads everything, in
// about a second per gigabyte. `model_path` is a Hugging Face folder.
absl::StatusOr<std::string> BaseDigest(const std::string& model_path);

// Returns the BaseDigest of a further teacher's model, or with an adapter one
// digest over both folders. `adapter`: the folder of a PEFT adapter; empty:
// none.
absl::StatusOr<std::string> TeacherDigest(const std::string& model_path,
                                          const std::string& adapter);

}  // namespace dapd
