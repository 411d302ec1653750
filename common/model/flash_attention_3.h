// Computes VariableLengthAttention's launches with FlashAttention-3
// (kernels/cuda/flash_attention_3.h), where the device and the tensors allow
// it.
//
// Shapes: N rows of queries, M of keys, H query heads, K key-value heads, D
// head_dim.
#pragma once

#include "common/model/device_flash_attention.h"
#include "common/model/variable_length_attention.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns the launchers if FlashAttention-3 computes attention of q [N, H, D],
// k and v [M, K, D]: in bfloat16, for widths that have kernels, on a device
// that has them, unless LibTorch's autograd differentiates the call. Null:
// LibTorch computes it. With LibTorch's deterministic algorithms only widths
// whose gradients have a fixed order of sums are taken, so that forward and
// backward passes agree.
const FlashAttention3* FlashAttention3For(const at::Tensor& q,
                                          const at::Tensor& k,
                                          const at::Tensor& v);

// As VariableLengthAttention::Forward. Sets `logsumexp` to the log-sum-exp of
// the scores, [H, N] float32.
at::Tensor FlashAttention3Forward(const FlashAttention3& kernels,
                                  const AttentionLaunch& launch,
                                  const at::Tensor& q,
                                  const at::Tensor& k,
                                  const at::Tensor& v,
                                  at::Tensor* logsumexp);

// As VariableLengthAttention::Backward.
AttentionGradients FlashAttention3Backward(const FlashAttention3& kernels,
                                           const AttentionLaunch& launch,
                                           const at::Tensor& grad_out,
                                           const at::Tensor& q,
                                           const at::Tensor& k,
                                           const at::Tensor& v,
                                           const at::Tensor& out,
                                           const at::Tensor& logsumexp);

}  // namespace dapd
