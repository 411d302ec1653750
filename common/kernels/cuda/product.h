// A matrix product on raw device pointers, as gemm.h and skinny_product.h
// compute it.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// Numbers of the inner size that cuBLAS's kernels take in one step. Where a sum
// is cut into parts, cuBLAS may ignore the numbers behind the last whole step
// (gemm.cc).
inline constexpr int64_t kCublasInnerStep = 64;

// y = alpha x op(w) + beta c + bias. All matrices are row-major; `*_stride` is
// the number of elements from row to row and a multiple of 16 bytes.
struct CudaProduct {
  int64_t rows = 0;         // M
  int64_t inner = 0;        // K
  int64_t cols = 0;         // N
  const void* x = nullptr;  // [M, K] in `number`
  int64_t x_stride = 0;
  // The launch in front does not write the first `early` columns of x: they are
  // multiplied while that launch still runs (skinny_product.h).
  int64_t early = 0;
  const void* w = nullptr;  // [N, K] in `number`, or [K, N] if `w_is_kn`
  int64_t w_stride = 0;
  bool w_is_kn = false;
  const void* c = nullptr;  // [M, N] like y, read if beta is not 0
  void* y = nullptr;        // [M, N] in `number`, or float32 if `float_result`
  int64_t y_stride = 0;     // of c, too
  CudaNumber number = CudaNumber::kFloat32;
  bool float_result = false;
  float alpha = 1.0F;
  float beta = 0.0F;
  const void* bias = nullptr;  // [N] in `number`, for each row; gemm.h only
  // The algorithm is chosen for this number of rows (gemm.h); 0: for `rows`.
  int64_t chosen_for = 0;
};

}  // namespace dapd
