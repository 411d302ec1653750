// Grouped-query causal attention over packed sequences of any lengths on a CUDA
// device: one launch for all of them, whose kernel is chosen by dtype and head
// dimension alone. So no shape is planned for when it comes first (as cuDNN
// does, for a tenth of a second and more), no mask is ever a tensor, and a
// row's bits depend on its sequence only.
//
// In half precision it is FlashAttention-2 (Dao 2023), which reads the keys
// that query heads share as they are; in float32 CUTLASS's memory-efficient
// attention, for which they are repeated.
//
// Shapes: N rows of queries, M of keys, H query heads, K key-value heads, D
// head_dim.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/tensor/aten.h"

namespace dapd {

// What an attention's backward pass needs besides inputs and output: the
// log-sum-exp of the scores and, on CUDA, the generator's state.
struct AttentionStatistics {
  std::vector<at::Tensor> tensors;
};

struct AttentionGradients {
  at::Tensor q;  // [N, H, D]
  at::Tensor k;  // [M, K, D]
  at::Tensor v;  // [M, K, D]
};

// Rows of a sequence.
struct RowRange {
  int64_t begin = 0;
  int64_t tokens = 0;
};

// Serves every layer of a pass. Keeps no state of a call.
class VariableLengthAttention {
 public:
  // Sequence i is the rows offsets[i] .. offsets[i + 1] of queries and keys.
  VariableLengthAttention(const std::vector<int64_t>& offsets,
                          at::Device device);
  // The queries q_offsets[i] .. q_offsets[i + 1] are the last tokens of the
  // keys keys[i]. Those of several sequences may be the same rows. Queries that
  // come before the first key look at nothing and give no number of meaning.
  // Forward only.
  VariableLengthAttention(const std::vector<int64_t>& q_offsets,
                          const std::vector<RowRange>& keys,
                          at::Device device);

  // softmax(q k^T / sqrt(D)) v. q [N, H, D]; k, v [M, K, D], already rotated;
  // of each the last dimension is contiguous. Returns [N, H, D]. Differentiable
  // by LibTorch, too, where the queries are the keys. `statistics` null: none.
  at::Tensor Forward(const at::Tensor& q,
                     const at::Tensor& k,
                     const at::Tensor& v,
                     AttentionStatistics* statistics) const;

  // `out` and `statistics` of Forward for the same q, k, v; `grad_out` as out.
  AttentionGradients Backward(const at::Tensor& grad_out,
                              const at::Tensor& q,
                              const at::Tensor& k,
                              const at::Tensor& v,
                              const at::Tensor& out,
                              const AttentionStatistics& statistics) const;

 private:
  // All int32 on the device.
  at::Tensor q_offsets_;  // [sequences + 1]
  at::Tensor k_offsets_;  // [sequences + 1]: where the keys of each begin
  std::optional<at::Tensor> k_tokens_;  // [sequences]; none: to the next one's
  int64_t longest_q_ = 0;
  int64_t longest_k_ = 0;
};

}  // namespace dapd
