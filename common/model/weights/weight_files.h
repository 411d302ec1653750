// Whether the files of a model's folder hold the model that its config.json
// describes, by their headers. Includes nothing of LibTorch, so that commands
// that compute nothing can ask.
#pragma once

#include "absl/status/statusor.h"

#include "common/model/spec/model_config.h"
#include "common/tensor/safetensors_folder.h"

namespace dapd {

// Opens model.safetensors or the shards of model.safetensors.index.json in
// config.folder. Every expected tensor must occur exactly once, with its shape
// and in float32, bfloat16 or float16, every shard must be there and whole, and
// nothing unexpected may be; an error names the tensor and the file. Values are
// not read, so this takes milliseconds whatever the model's size.
//   NOT_FOUND (exit code kData)  the folder has no weights
absl::StatusOr<SafetensorsFolder> OpenWeightFiles(const ModelConfig& config);

}  // namespace dapd
