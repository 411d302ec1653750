// The element-wise parts of a decoder layer for training on a GPU, each with
// its gradient. Each is one pass over memory that reads and writes every number
// once (common/kernels/training_rows.h does the same on a CPU; launch.h has the
// conventions). The forward mathematics with its roundings is in
// decode_layer_math.h, the gradients are in training_row_math.h. Slow twins:
// the tensor operations of model/fast/layer_math.cc.
//
// Rows are aligned to 16 bytes; sizes and strides are multiples of 8. Strides
// are in numbers, from row to row. Rows without a stride lie side by side.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// The largest row that a block holds.
inline constexpr int64_t kCudaMaxNormSize = 8192;

// Computes sum = x + delta, then y = norm(sum) * weight. With null `delta`, y =
// norm(x) * weight.
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

// Adds the gradient of x to grad_x; `grad` is the gradient of y.
struct NormRowsBackwardArgs {
  int64_t rows = 0;
  int64_t size = 0;
  float eps = 0.0F;
  const void* grad = nullptr;    // [rows, size]
  const void* x = nullptr;       // [rows, size]
  const void* weight = nullptr;  // [size]
  void* grad_x = nullptr;        // [rows, size]
};

// Computes y = rotate(norm(x)) of every head; y may be x if their strides are
// equal. Backward: `y` holds the gradient of the result, which is replaced by
// the gradient of x.
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

// Computes out = silu(gate) * up. Backward: `out` holds the gradient of the
// product, and `gate` and `up` are replaced by their gradients.
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
