// What training_row_kernel.cc gives to training_rows.cc and
// causal_attention.cc, once per CpuLevel: their functions for one row.
#pragma once

#include <cstdint>

namespace dapd {

struct TrainingRowKernel {
  void (*norm)(
      const float* x, const float* weight, int64_t size, float eps, float* y);
  void (*add_norm_backward)(const float* grad,
                            const float* x,
                            const float* weight,
                            int64_t size,
                            float eps,
                            float* grad_x);
  // As add_norm_backward, but over `grad`.
  void (*norm_backward)(const float* x,
                        const float* weight,
                        int64_t size,
                        float eps,
                        float* grad);
  // y may be x. `turn` is 1, or -1 to turn back.
  void (*rotate)(const float* x,
                 const float* cos,
                 const float* sin,
                 int64_t size,
                 float turn,
                 float* y);
  void (*gated)(const float* gate, const float* up, int64_t size, float* y);
  void (*gated_backward)(const float* grad,
                         int64_t size,
                         float* gate,
                         float* up);
  // Replaces scores by their softmax; returns the log of the sum of their
  // exponentials. `size` is at least 1.
  float (*soften)(float* scores, int64_t size);
  // Replaces `scores` by their softmax, given that log, and `grad`, that of the
  // softmax, by that of the scores: p (grad - mean), mean the sum of p grad.
  void (*soften_backward)(
      float logsumexp, float mean, int64_t size, float* scores, float* grad);
};

// The kernel of the level in use.
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
