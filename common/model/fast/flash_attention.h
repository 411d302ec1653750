// Grouped-query causal attention over packed sequences, forward and backward
// by hand, without a copy of the keys for each query head and without the
// [T, T] matrix of scores (Dao et al. 2022): on the CPU, in float32 and
// bfloat16, by our kernels (kernels/causal_attention.h), whose statistics are
// the log-sum-exp, [N, H] float32; on CUDA by one launch for all sequences
// (variable_length_attention.h).
//
// Shapes: N rows (tokens), H query heads, K key-value heads, D head_dim.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/variable_length_attention.h"
#include "common/tensor/aten.h"

namespace dapd {

// Whether our kernels compute with a tensor: float32 and bfloat16 on the CPU.
bool HasCausalAttention(const at::Tensor& tensor);

// By our kernels: q [T, H, D] are those of the last T tokens of `keys` and
// `values`, [K, tokens, D]. Returns [T, H, D].
at::Tensor AttendFromEnd(const at::Tensor& q,
                         const at::Tensor& keys,
                         const at::Tensor& values);

// Serves every layer of a pass. Keeps no state of a call.
class FlashAttention {
 public:
  // `offsets` as in PackedTokens; all rows live on `device`.
  FlashAttention(std::vector<int64_t> offsets, at::Device device);

  // softmax(q k^T / sqrt(D)) v, causal inside each sequence. q [N, H, D]; k, v
  // [N, K, D], already rotated. Returns [N, H, D].
  at::Tensor Forward(const at::Tensor& q,
                     const at::Tensor& k,
                     const at::Tensor& v,
                     AttentionStatistics* statistics) const;

  at::Tensor operator()(const at::Tensor& q,
                        const at::Tensor& k,
                        const at::Tensor& v,
                        AttentionStatistics* statistics) const {
    return Forward(q, k, v, statistics);
  }

  // `out` and `statistics` of Forward for the same q, k, v; `grad_out` as out.
  AttentionGradients Backward(const at::Tensor& grad_out,
                              const at::Tensor& q,
                              const at::Tensor& k,
                              const at::Tensor& v,
                              const at::Tensor& out,
                              const AttentionStatistics& statistics) const;

 private:
  std::vector<int64_t> offsets_;
  std::optional<VariableLengthAttention> at_once_;  // on CUDA
};

}  // namespace dapd
