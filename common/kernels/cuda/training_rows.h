// The element-wise parts of a decoder layer for training on a GPU, each with
// its gradient: one pass over memory, every number read once and written once
// (training_rows.h is the same for a CPU, launch.h has the conventions).
// Forward mathematics, with its roundings: decode_layer_math.h; gradients:
// training_row_math.h. Slow twins: the tensor operations of
// model/fast/layer_math.cc.
//
// Rows are aligned to 16 bytes, sizes and strides multiples of 8. Strides are
// in numbers, from row to row; what has none lies side by side.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// The largest row that a block holds.
inline constexpr int64_t kCudaMaxNormSize = 8192;

// sum = x + delta, then y = norm(sum) * weight; without `delta` of x.
struct NormRowsArgs {
  int64_t rows = 0;
  int64_t size = 0;  // up to kCudaMaxNormSize
  float eps = 0.0F;
  const void* x = nullptr;       // [rows, size]
  const void* delta = nullptr;   // [rows, size] or null
  void* sum = nullptr;           // [rows, size], may be x or delta
  const void* weight = nullptr;  // [size]
  void* y = nullptr;             // [rows, size]
  int64_t y_stride = 0;
};

// grad_x += the gradient of x, where `grad` is that of y.
struct NormRowsBackwardArgs {
  int64_t rows = 0;
  int64_t size = 0;
  float eps = 0.0F;
  const void* grad = nullptr;    // [rows, size]
  const void* x = nullptr;       // [rows, size]
  const void* weight = nullptr;  // [size]
  void* grad_x = nullptr;        // [rows, size]
};

// y = rotate(norm(x)) of every head; y may be x where the strides agree.
// Backward: `y` holds the gradient of the result and gets that of x.
struct RotateRowsArgs {
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;  // up to kMaxHeadDim
  float eps = 0.0F;
  const void* x = nullptr;       // [rows, heads, head_dim]
  int64_t x_stride = 0;          // the heads of a row lie side by side
  const void* norm = nullptr;    // [head_dim]; null: not normalised
  const void* cosine = nullptr;  // [rows, head_dim], the first half is read
  const void* sine = nullptr;    // [rows, head_dim]
  void* y = nullptr;             // [rows, heads, head_dim]
};

// out = silu(gate) * up. Backward: `gate` and `up` become their gradients,
// where `out` holds that of the product.
struct GatedRowsArgs {
  int64_t rows = 0;
  int64_t size = 0;
  void* gate = nullptr;   // [rows, size]
  void* up = nullptr;     // [rows, size]
  int64_t in_stride = 0;  // of gate and of up
  void* out = nullptr;    // [rows, size]
  int64_t out_stride = 0;
};

extern "C" {
int DapdCudaNormRows(const NormRowsArgs* args, CudaNumber number, void* stream);
int DapdCudaNormRowsBackward(const NormRowsBackwardArgs* args,
                             CudaNumber number,
                             void* stream);
int DapdCudaRotateRows(const RotateRowsArgs* args,
                       CudaNumber number,
                       void* stream);
int DapdCudaRotateRowsBackward(const RotateRowsArgs* args,
                               CudaNumber number,
                               void* stream);
int DapdCudaGatedRows(const GatedRowsArgs* args,
                      CudaNumber number,
                      void* stream);
int DapdCudaGatedRowsBackward(const GatedRowsArgs* args,
                              CudaNumber number,
                              void* stream);
}

}  // namespace dapd
