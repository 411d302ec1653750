// What the attention of training, scoring and prompts on a GPU asks of a model
// (common/model/variable_length_attention.h).
#pragma once

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// In bfloat16 FlashAttention-2, which takes head dimensions up to 256 that are
// multiples of 8; in float32 CUTLASS's kernel, which takes multiples of 4. A
// CONFIG error for any other, which a CPU takes. `precision`: model.precision.
absl::Status CheckGpuModel(Precision precision, const ModelConfig& model);

}  // namespace dapd
