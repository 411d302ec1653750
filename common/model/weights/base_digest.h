// What a base model is, as one digest: of the bytes of every file that a
// result can depend on.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// SHA-256 over name and SHA-256 of each *.safetensors, *.json and *.jinja file
// directly in the model's folder, by name. Reads everything: about a second a
// gigabyte. `model_path` is a Hugging Face folder.
absl::StatusOr<std::string> BaseDigest(const std::string& model_path);

}  // namespace dapd
