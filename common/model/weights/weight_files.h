// Checks by their headers that the files of a model's folder hold the model
// that its config.json describes. Includes nothing of LibTorch, so that
// commands that compute nothing can use it.
#pragma once

#include "absl/status/statusor.h"

#include "common/model/spec/model_config.h"
#include "common/tensor/safetensors_folder.h"

namespace dapd {

// Opens model.safetensors or the shards of model.safetensors.index.json in
// config.folder. Every expected tensor must occur exactly once, with its shape
// and in float32, bfloat16 or float16, every shard must be present and
// complete, and no other tensor may be there; an error names the tensor and the
// file. Does not read values, so it takes milliseconds for a model of any size.
//   NOT_FOUND (exit code kData)  the folder has no weights
absl::StatusOr<SafetensorsFolder> OpenWeightFiles(const ModelConfig& config);

}  // namespace dapd
