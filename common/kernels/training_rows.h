// The element-wise parts of a decoder layer and their gradients for training on
// the CPU. Each function passes over its memory once, where tensor operations
// make four to ten passes. Slow twins: the tensor operations of
// model/fast/layer_math.cc, which the tests compare with.
//
// T is float or BFloat16. Everything is computed in float32, and a result is
// rounded to T once. Rows lie side by side and are divided among up to
// `num_threads` threads; a row's numbers do not depend on the number of
// threads.
#pragma once

#include <cstdint>

namespace dapd {

// Rows that are normalised: y = weight x r, r = 1 / sqrt(mean(x^2) + eps).
template <typename T>
struct NormShape {
  int64_t rows = 0;
  int64_t size = 0;
  const T* weight = nullptr;  // [size]
  float eps = 0.0F;
};

template <typename T>
void NormRows(int num_threads, const NormShape<T>& shape, const T* x, T* y);

// Computes grad_x += r (g - x r^2 mean(g x)) with g = grad weight.
template <typename T>
void AddNormBackwardRows(int num_threads,
                         const NormShape<T>& shape,
                         const T* grad,
                         const T* x,
                         T* grad_x);

// Heads of tokens and the angles by which they turn, half-split: dimension i
// turns with dimension i + head_dim / 2.
template <typename T>
struct HeadRows {
  int64_t rows = 0;  // tokens
  int64_t heads = 0;
  int64_t head_dim = 0;
  const T* norm = nullptr;  // [head_dim]; null: not normalised
  float eps = 0.0F;
  // [rows, head_dim]; only the first half is read.
  const T* cos = nullptr;
  const T* sin = nullptr;
};

// Computes y = rotate(norm(x)), [rows, heads, head_dim].
template <typename T>
void NormAndRotateRows(int num_threads,
                       const HeadRows<T>& shape,
                       const T* x,
                       T* y);

// Replaces `grad`, the gradient of y, by the gradient of x.
template <typename T>
void NormAndRotateBackwardRows(int num_threads,
                               const HeadRows<T>& shape,
                               const T* x,
                               T* grad);

// Computes y = silu(gate) up over `count` numbers.
template <typename T>
void GatedRows(
    int num_threads, const T* gate, const T* up, int64_t count, T* y);

// Replaces `gate` and `up` by their gradients.
template <typename T>
void GatedBackwardRows(
    int num_threads, const T* grad, int64_t count, T* gate, T* up);

}  // namespace dapd
