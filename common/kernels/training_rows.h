// Rows of a decoder layer's element-wise mathematics and its gradients in
// float32, for training on the CPU: each function passes over its memory once,
// where tensor operations make four to ten passes. Slow twins: the tensor
// operations of model/fast/layer_math.cc, compared in its tests.
//
// All pointers are to float32; rows lie side by side. Rows are spread over up
// to `num_threads` threads; a row's numbers do not depend on how many those
// are.
#pragma once

#include <cstdint>

namespace dapd {

// y = weight x r, r = 1 / sqrt(mean(x^2) + eps), row by row of `size`.
void NormRows(int num_threads,
              const float* x,
              const float* weight,
              int64_t rows,
              int64_t size,
              float eps,
              float* y);

// grad_x += r (g - x r^2 mean(g x)), g = grad weight.
void AddNormBackwardRows(int num_threads,
                         const float* grad,
                         const float* x,
                         const float* weight,
                         int64_t rows,
                         int64_t size,
                         float eps,
                         float* grad_x);

// Heads of a token and the angles by which they turn, half-split: dimension i
// with i + head_dim / 2.
struct HeadRows {
  int64_t rows = 0;  // tokens
  int64_t heads = 0;
  int64_t head_dim = 0;
  const float* norm = nullptr;  // [head_dim]; null: not normalised
  float eps = 0.0F;
  // [rows, head_dim], of which the first half is read.
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// y = rotate(norm(x)), [rows, heads, head_dim].
void NormAndRotateRows(int num_threads,
                       const HeadRows& shape,
                       const float* x,
                       float* y);

// Replaces `grad`, that of y, by the gradient of x.
void NormAndRotateBackwardRows(int num_threads,
                               const HeadRows& shape,
                               const float* x,
                               float* grad);

// y = silu(gate) up over `count` numbers.
void GatedRows(int num_threads,
               const float* gate,
               const float* up,
               int64_t count,
               float* y);

// Replaces `gate` and `up` by their gradients.
void GatedBackwardRows(
    int num_threads, const float* grad, int64_t count, float* gate, float* up);

}  // namespace dapd
