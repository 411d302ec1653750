// Allocates the keys and values of a prompt that is prefilled.
#pragma once

#include <cstdint>

#include "common/kernels/decode_attention_math.h"
#include "common/kernels/float8.h"
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

// Returns the same for keys and values in Float8.
inline at::Tensor EmptyFloat8Pages(const ModelWeights& weights, int64_t pages) {
  const ModelConfig& config = weights.config;
  return at::zeros({pages,
                    config.num_layers,
                    2,
                    config.num_kv_heads,
                    Float8PartBytes(config.head_dim)},
                   weights.embedding.options().dtype(at::kByte));
}

}  // namespace dapd
