// Computes grouped-query causal attention over packed sequences of any lengths,
// forward and backward by hand: without the [T, T] matrix of scores (Dao et al.
// 2022) and without a mask.
//
// On the CPU, in float32 and bfloat16, the kernels of
// kernels/causal_attention.h compute it, without a copy of the keys for each
// query head.
//
// On a CUDA device one launch serves all sequences, and its kernel is chosen by
// dtype and head dimension alone, so a shape that comes first costs no planning
// (cuDNN plans for a tenth of a second and more). In bfloat16 the kernel is
// FlashAttention-3 on sm_90 for the widths that it has (flash_attention_3.h),
// and otherwise FlashAttention-2 (Dao 2023). Both read keys once for the query
// heads that share them; FlashAttention-2 expands their gradients to all query
// heads and adds them afterwards. In float32 the kernel is CUTLASS's
// memory-efficient attention, for which the keys are repeated.
//
// On both devices a row's bits depend on its own sequence only.
//
// Shapes: N rows of queries, M of keys, H query heads, K key-value heads, D
// head_dim.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/tensor/aten.h"

namespace dapd {

// Values that an attention's backward pass needs besides inputs and output. On
// the CPU: the log-sum-exp of the scores, [N, H] float32. On CUDA: the
// log-sum-exp [H, N] and, if LibTorch computed it, the state of its generator.
struct AttentionStatistics {
  std::vector<at::Tensor> tensors;
};

struct AttentionGradients {
  at::Tensor q;  // [N, H, D]
  at::Tensor k;  // [M, K, D]
  at::Tensor v;  // [M, K, D]
};

// Consecutive rows of one sequence.
struct RowRange {
  int64_t begin = 0;
  int64_t tokens = 0;
};

// The arguments of one launch for all sequences on a CUDA device. Tensors are
// int32 on the device.
struct AttentionLaunch {
  at::Tensor q_offsets;  // [sequences + 1]
  at::Tensor k_offsets;  // [sequences + 1]: where the keys of each begin
  std::optional<at::Tensor> k_tokens;  // [sequences]; none: up to the next
  int64_t longest_q = 0;
  int64_t longest_k = 0;
};

// One object serves every layer of a pass and may be used by several threads.
class VariableLengthAttention {
 public:
  // Sequence i is the rows offsets[i] .. offsets[i + 1] of queries and keys.
  // All tensors live on `device`.
  VariableLengthAttention(const std::vector<int64_t>& offsets,
                          at::Device device);
  // The queries q_offsets[i] .. q_offsets[i + 1] are the last tokens of the
  // keys keys[i]. Several sequences may have keys in the same rows. Forward
  // only. A sequence with more queries than keys (unused rows) is allowed on
  // CUDA, where its results have no meaning; on the CPU it throws c10::Error.
  VariableLengthAttention(const std::vector<int64_t>& q_offsets,
                          const std::vector<RowRange>& keys,
                          at::Device device);

  // Returns softmax(q k^T / sqrt(D)) v, [N, H, D], contiguous. q [N, H, D]; k,
  // v [M, K, D], already rotated; the last dimension of each is contiguous.
  // Without `statistics` (null) there is no Backward. On CUDA LibTorch's
  // autograd differentiates it, too, if queries and keys are the same rows.
  // Throws c10::Error on the CPU unless the dtype is float32 or bfloat16.
  at::Tensor Forward(const at::Tensor& q,
                     const at::Tensor& k,
                     const at::Tensor& v,
                     AttentionStatistics* statistics) const;

  // Makes the object an `Attend` (fast/layer_pass.h).
  at::Tensor operator()(const at::Tensor& q,
                        const at::Tensor& k,
                        const at::Tensor& v,
                        AttentionStatistics* statistics) const {
    return Forward(q, k, v, statistics);
  }

  // Returns the gradients of q, k and v. `out` and `statistics` are Forward's
  // for the same q, k, v; `grad_out` has the shape of `out`. Throws c10::Error
  // for sequences with shared keys.
  AttentionGradients Backward(const at::Tensor& grad_out,
                              const at::Tensor& q,
                              const at::Tensor& k,
                              const at::Tensor& v,
                              const at::Tensor& out,
                              const AttentionStatistics& statistics) const;

 private:
  struct Sequence {
    RowRange queries;
    RowRange keys;
  };

  static AttentionLaunch LaunchOf(const std::vector<int64_t>& offsets,
                                  at::Device device);
  static AttentionLaunch LaunchOf(const std::vector<int64_t>& q_offsets,
                                  const std::vector<RowRange>& keys,
                                  at::Device device);

  at::Tensor ForwardOnCpu(const at::Tensor& q,
                          const at::Tensor& k,
                          const at::Tensor& v,
                          AttentionStatistics* statistics) const;
  AttentionGradients BackwardOnCpu(const at::Tensor& grad_out,
                                   const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v,
                                   const at::Tensor& out,
                                   const at::Tensor& logsumexp) const;

  bool shares_keys_ = false;               // no Backward
  std::vector<Sequence> sequences_;        // on the CPU, without empty ones
  std::optional<AttentionLaunch> launch_;  // on CUDA
};

}  // namespace dapd
