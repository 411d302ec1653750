// Attention of a sequence's next tokens over the keys and values of the chunks
// before them (chunk_forward.h) and their own, causal among themselves; and of
// several sequences' next tokens. On the CPU; on CUDA see
// packed_chunk_attention.h.
//
// Shapes: T next tokens, N of a pass, H query heads, K key-value heads, D
// head_dim.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/fast/packed_chunk_attention.h"
#include "common/model/spec/model_config.h"
#include "common/tensor/aten.h"

namespace dapd {

// Serves every layer of a pass.
class ChunkAttention {
 public:
  // For the `tokens` tokens after those of `past`, which holds the keys_values
  // of the chunks before, in order. `options`: of the queries.
  ChunkAttention(const ModelConfig& config,
                 std::vector<at::Tensor> past,
                 int64_t tokens,
                 const at::TensorOptions& options);

  // Tokens of the chunks before.
  int64_t begin() const { return begin_; }

  // q [T, H, D], rotated; keys, rotated, and values of the same tokens [K, T,
  // D]. Returns [T, H, D], contiguous.
  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& keys,
                    const at::Tensor& values) const;

 private:
  // [K, begin + T, D]: keys (part 0) or values (part 1) of past and own.
  at::Tensor WithPast(int64_t layer, int64_t part, const at::Tensor& own) const;
  at::Tensor MaskedProduct(const at::Tensor& q,
                           const at::Tensor& keys,
                           const at::Tensor& values) const;

  std::vector<at::Tensor> past_;
  int64_t begin_ = 0;
  // [H / K * T, begin + T], added to the scores; undefined where our kernels
  // attend.
  at::Tensor mask_;
};

// Chunks that stand side by side in a pass, each attended to by itself, so that
// its bits do not depend on what else passes. Serves every layer of the pass.
class SideBySideAttention {
 public:
  // `keys_values` [layers, 2, K, N, D]: where the pass writes each layer's,
  // before it attends to it.
  SideBySideAttention(const ModelConfig& config,
                      const std::vector<PackedChunk>& chunks,
                      const at::Tensor& keys_values);

  // q [N, H, D], rotated; keys, rotated, and values [K, N, D]. Returns [N, H,
  // D].
  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& keys,
                    const at::Tensor& values) const;

 private:
  struct Part {
    RowRange rows;
    ChunkAttention attention;
  };
  std::vector<Part> parts_;
};

}  // namespace dapd
