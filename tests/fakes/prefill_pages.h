// Allocates the keys and values of a prompt that is prefilled.
#pragma once

#include <cstdint>

#include "common/kernels/decode_attention_math.h"
#include "common/model/weights/weights.h"

namespace dapd {

// Returns pages as PrefillPrompt takes them, in the dtype and on the device of
// `weights`.
inline at::Tensor EmptyPages(const ModelWeights& weights, int64_t pages) {
  const ModelConfig& config = weights.config;
  return at::zeros({pages,
                    config.num_layers,
                    2,
                    config.num_kv_heads,
                    kPageTokens,
                    config.head_dim},
                   weights.embedding.options());
}

}  // namespace dapd
