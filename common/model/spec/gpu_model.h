// The requirements on a model of the attention that training, scoring and
// prompts use on a GPU (common/model/variable_length_attention.h).
#pragma once

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// In bfloat16 FlashAttention takes head dimensions up to 256 that are multiples
// of 8; in float32 CUTLASS's kernel takes multiples of 4. Returns a
// CONFIG error for any other head dimension, which only a CPU can compute.
// `precision`: model.precision.
absl::Status CheckGpuModel(Precision precision, const ModelConfig& model);

}  // namespace dapd
