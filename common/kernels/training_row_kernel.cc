// One row of training_rows.h, compiled once per CPU level.
#include "common/kernels/simd.h"
#include "common/kernels/training_row_cpu_levels.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// 1 / sqrt(mean(x^2) + eps).
float ScaleOf(const float* x, int64_t size, float eps) {
  Floats squares = {};
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats v = LoadPart(x + i, size - i, 0.0F);
    squares += v * v;
  }
  return 1.0F / __builtin_sqrtf(Sum(squares) / static_cast<float>(size) + eps);
}

void Norm(
    const float* x, const float* weight, int64_t size, float eps, float* y) {
  const float scale = ScaleOf(x, size, eps);
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats v = LoadPart(x + i, size - i, 0.0F);
    const Floats w = LoadPart(weight + i, size - i, 0.0F);
    StorePart(w * (v * scale), size - i, y + i);
  }
}

// `combine` makes the new entry of `out` from the old one and the gradient.
template <typename Combine>
void NormBackwardInto(const float* grad,
                      const float* x,
                      const float* weight,
                      int64_t size,
                      float eps,
                      float* out,
                      const Combine& combine) {
  const float scale = ScaleOf(x, size, eps);
  Floats products = {};
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    products += LoadPart(grad + i, left, 0.0F) *
                LoadPart(weight + i, left, 0.0F) * LoadPart(x + i, left, 0.0F);
  }
  const float mean = Sum(products) * scale * scale / static_cast<float>(size);
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    const Floats g =
        LoadPart(grad + i, left, 0.0F) * LoadPart(weight + i, left, 0.0F);
    const Floats v = LoadPart(x + i, left, 0.0F);
    StorePart(combine(LoadPart(out + i, left, 0.0F), (g - v * mean) * scale),
              left,
              out + i);
  }
}

void AddNormBackward(const float* grad,
                     const float* x,
                     const float* weight,
                     int64_t size,
                     float eps,
                     float* grad_x) {
  NormBackwardInto(
      grad,
      x,
      weight,
      size,
      eps,
      grad_x,
      [](const Floats& old, const Floats& gradient) { return old + gradient; });
}

void NormBackward(
    const float* x, const float* weight, int64_t size, float eps, float* grad) {
  NormBackwardInto(
      grad,
      x,
      weight,
      size,
      eps,
      grad,
      [](const Floats&, const Floats& gradient) { return gradient; });
}

void Rotate(const float* x,
            const float* cos,
            const float* sin,
            int64_t size,
            float turn,
            float* y) {
  const int64_t half = size / 2;
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t left = half - i;
    const Floats first = LoadPart(x + i, left, 0.0F);
    const Floats second = LoadPart(x + half + i, left, 0.0F);
    const Floats c = LoadPart(cos + i, left, 0.0F);
    const Floats s = LoadPart(sin + i, left, 0.0F) * turn;
    StorePart(first * c - second * s, left, y + i);
    StorePart(second * c + first * s, left, y + half + i);
  }
}

void Gated(const float* gate, const float* up, int64_t size, float* y) {
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    const Floats g = LoadPart(gate + i, left, 0.0F);
    const Floats u = LoadPart(up + i, left, 0.0F);
    StorePart(g / (1.0F + Exp(-g)) * u, left, y + i);
  }
}

void GatedBackward(const float* grad, int64_t size, float* gate, float* up) {
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    const Floats dy = LoadPart(grad + i, left, 0.0F);
    const Floats g = LoadPart(gate + i, left, 0.0F);
    const Floats u = LoadPart(up + i, left, 0.0F);
    const Floats sigmoid = 1.0F / (1.0F + Exp(-g));
    StorePart(dy * u * sigmoid * (1.0F + g * (1.0F - sigmoid)), left, gate + i);
    StorePart(dy * g * sigmoid, left, up + i);
  }
}

float Soften(float* scores, int64_t size) {
  Floats most = LoadPart(scores, size, scores[0]);
  for (int64_t i = kLanes; i < size; i += kLanes) {
    const Floats v = LoadPart(scores + i, size - i, scores[0]);
    most = v > most ? v : most;
  }
  const float max = Largest(most);
  Floats sums = {};
  for (int64_t i = 0; i < size; i += kLanes) {
    // What fills a part becomes 0.
    const Floats p = Exp(LoadPart(scores + i, size - i, max - 100.0F) - max);
    sums += p;
    StorePart(p, size - i, scores + i);
  }
  const float sum = Sum(sums);
  const float scale = 1.0F / sum;
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    StorePart(LoadPart(scores + i, left, 0.0F) * scale, left, scores + i);
  }
  return max + __builtin_logf(sum);
}

void SoftenBackward(
    float logsumexp, float mean, int64_t size, float* scores, float* grad) {
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    const Floats p = Exp(LoadPart(scores + i, left, 0.0F) - logsumexp);
    StorePart(p, left, scores + i);
    StorePart(p * (LoadPart(grad + i, left, 0.0F) - mean), left, grad + i);
  }
}

}  // namespace

TrainingRowKernel MakeTrainingRowKernel() {
  return {Norm,
          AddNormBackward,
          NormBackward,
          Rotate,
          Gated,
          GatedBackward,
          Soften,
          SoftenBackward};
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
