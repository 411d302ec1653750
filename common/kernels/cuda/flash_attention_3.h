// FlashAttention-3 (Shah et al. 2024) on sm_90: causal attention over sequences
// of any lengths, forward and backward, in bfloat16 for heads of 64, 128 and
// 256 numbers. The kernels are Dao-AILab's; deploy/install.sh brings their
// source, and flash_attention_3_kernels.cuh instantiates what is needed here.
// launch.h has the launchers' conventions.
//
// Query heads that share keys read the same keys; their gradients are added in
// float32. A row's bits depend on its own sequence only, and the gradients'
// too with `is_deterministic`; otherwise sums are added in any order.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"
#include "common/kernels/flash_attention_3_memory.h"

namespace dapd {

// Rows of heads in bfloat16, [rows, heads, D]; D numbers lie side by side.
// Strides are in numbers and multiples of 8, and `data` is a multiple of 16
// bytes.
struct FlashAttention3Rows {
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

struct FlashAttention3Args {
  FlashAttention3Shape shape;
  FlashAttention3Rows q;       // [N, H, D]
  FlashAttention3Rows k;       // [M, K, D]
  FlashAttention3Rows v;       // [M, K, D]
  FlashAttention3Rows out;     // [N, H, D]
  float* logsumexp = nullptr;  // [H, N]: natural logarithms
  // Sequence i has the queries q_offsets[i] .. q_offsets[i + 1], which are the
  // last of its keys, and the keys from k_offsets[i] on: k_tokens[i] of them,
  // or without k_tokens (null) those up to k_offsets[i + 1]. Several sequences
  // may have keys in the same rows. Rows behind a sequence's keys are read and
  // multiplied by zero, so they must hold finite numbers.
  const int32_t* q_offsets = nullptr;  // [sequences + 1]
  const int32_t* k_offsets = nullptr;  // [sequences + 1]
  const int32_t* k_tokens = nullptr;   // [sequences]
  float scale = 0.0F;                  // of the scores
  void* memory = nullptr;              // ForwardMemoryOf or BackwardMemoryOf
};

// In the backward pass `args` has Forward's q, k, v, out and logsumexp;
// `args.memory` is larger, and its k_tokens are null.
struct FlashAttention3BackwardArgs {
  FlashAttention3Args args;
  FlashAttention3Rows grad_out;  // [N, H, D]
  FlashAttention3Rows grad_q;    // [N, H, D], written
  FlashAttention3Rows grad_k;    // [M, K, D], written
  FlashAttention3Rows grad_v;    // [M, K, D], written
  bool is_deterministic = false;
};

extern "C" {

// Returns whether the present device has the kernels' instructions (sm_90).
int DapdCudaHasFlashAttention3();

// Computes `out` and `logsumexp` if HasFlashAttention3(D, false).
int DapdCudaFlashAttention3Forward(const FlashAttention3Args* args,
                                   void* stream);

// Computes the gradients if HasFlashAttention3(D, is_deterministic).
int DapdCudaFlashAttention3Backward(const FlashAttention3BackwardArgs* args,
                                    void* stream);
}

}  // namespace dapd
