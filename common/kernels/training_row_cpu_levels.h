// Declares the table that training_row_kernel.cc makes for training_rows.cc and
// causal_attention.cc, once per CpuLevel up to avx512_bf16. It holds their
// functions for one row, which tiles would not help.
#pragma once

#include <cstdint>

#include "common/kernels/bfloat16.h"

namespace dapd {

// Functions for rows of T, float or BFloat16, computed in float32.
template <typename T>
struct TrainingRowsOf {
  void (*norm)(const T* x, const T* weight, int64_t size, float eps, T* y);
  void (*add_norm_backward)(const T* grad,
                            const T* x,
                            const T* weight,
                            int64_t size,
                            float eps,
                            T* grad_x);
  // Is add_norm_backward, except that it overwrites `grad`.
  void (*norm_backward)(
      const T* x, const T* weight, int64_t size, float eps, T* grad);
  // y may be x. `turn` is 1, or -1 to turn back.
  void (*rotate)(
      const T* x, const T* cos, const T* sin, int64_t size, float turn, T* y);
  void (*gated)(const T* gate, const T* up, int64_t size, T* y);
  void (*gated_backward)(const T* grad, int64_t size, T* gate, T* up);
  // Computes to[i] = scale from[i].
  void (*widen)(const T* from, int64_t size, float scale, float* to);
  void (*narrow)(const float* from, int64_t size, float scale, T* to);
};

struct TrainingRowKernel {
  TrainingRowsOf<float> floats;
  TrainingRowsOf<BFloat16> halves;
  template <typename T>
  const TrainingRowsOf<T>& Of() const;

  // Replaces scores by the softmax of `scale` times them; returns the log of
  // the sum of the exponentials. `size` is at least 1, `scale` above 0.
  float (*soften)(float* scores, int64_t size, float scale);
  // Replaces `scores` by that softmax, where the caller passes that log, and
  // replaces `grad`, the gradient of the softmax, by the gradient of the scaled
  // scores: p (grad - mean), with mean the sum of p grad.
  void (*soften_backward)(
      float logsumexp, int64_t size, float scale, float* scores, float* grad);
};

template <>
inline const TrainingRowsOf<float>& TrainingRowKernel::Of() const {
  return floats;
}
template <>
inline const TrainingRowsOf<BFloat16>& TrainingRowKernel::Of() const {
  return halves;
}

// Returns the functions of the level in use.
const TrainingRowKernel& TrainingRows();

namespace baseline {
TrainingRowKernel MakeTrainingRowKernel();
}
namespace avx2 {
TrainingRowKernel MakeTrainingRowKernel();
}
namespace avx512 {
TrainingRowKernel MakeTrainingRowKernel();
}
namespace avx512_bf16 {
TrainingRowKernel MakeTrainingRowKernel();
}

}  // namespace dapd
