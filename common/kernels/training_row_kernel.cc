// Computes one row for training_rows.h. This file is compiled once per CPU
// level.
#include "common/kernels/simd_halves.h"
#include "common/kernels/training_row_cpu_levels.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// Returns 1 / sqrt(mean(x^2) + eps).
template <typename T>
float ScaleOf(const T* x, int64_t size, float eps) {
  Floats squares = {};
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats v = LoadPart(x + i, size - i, 0.0F);
    squares += v * v;
  }
  return 1.0F / __builtin_sqrtf(Sum(squares) / static_cast<float>(size) + eps);
}

template <typename T>
void Norm(const T* x, const T* weight, int64_t size, float eps, T* y) {
  const float scale = ScaleOf(x, size, eps);
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats v = LoadPart(x + i, size - i, 0.0F);
    const Floats w = LoadPart(weight + i, size - i, 0.0F);
    StorePart(w * (v * scale), size - i, y + i);
  }
}

// `combine` makes the new entry of `out` from the old one and the gradient.
template <typename T, typename Combine>
void NormBackwardInto(const T* grad,
                      const T* x,
                      const T* weight,
                      int64_t size,
                      float eps,
                      T* out,
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

template <typename T>
void AddNormBackward(const T* grad,
                     const T* x,
                     const T* weight,
                     int64_t size,
                     float eps,
                     T* grad_x) {
  NormBackwardInto(
      grad,
      x,
      weight,
      size,
      eps,
      grad_x,
      [](const Floats& old, const Floats& gradient) { return old + gradient; });
}

template <typename T>
void NormBackward(
    const T* x, const T* weight, int64_t size, float eps, T* grad) {
  NormBackwardInto(
      grad,
      x,
      weight,
      size,
      eps,
      grad,
      [](const Floats&, const Floats& gradient) { return gradient; });
}

template <typename T>
void Rotate(
    const T* x, const T* cos, const T* sin, int64_t size, float turn, T* y) {
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

template <typename T>
void Gated(const T* gate, const T* up, int64_t size, T* y) {
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    const Floats g = LoadPart(gate + i, left, 0.0F);
    const Floats u = LoadPart(up + i, left, 0.0F);
    StorePart(g / (1.0F + Exp(-g)) * u, left, y + i);
  }
}

template <typename T>
void GatedBackward(const T* grad, int64_t size, T* gate, T* up) {
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

template <typename T>
void Widen(const T* from, int64_t size, float scale, float* to) {
  for (int64_t i = 0; i < size; i += kLanes) {
    StorePart(LoadPart(from + i, size - i, 0.0F) * scale, size - i, to + i);
  }
}

template <typename T>
void Narrow(const float* from, int64_t size, float scale, T* to) {
  for (int64_t i = 0; i < size; i += kLanes) {
    StorePart(LoadPart(from + i, size - i, 0.0F) * scale, size - i, to + i);
  }
}

float Soften(float* scores, int64_t size, float scale) {
  Floats most = LoadPart(scores, size, scores[0]);
  for (int64_t i = kLanes; i < size; i += kLanes) {
    const Floats v = LoadPart(scores + i, size - i, scores[0]);
    most = v > most ? v : most;
  }
  const float max = Largest(most) * scale;
  Floats sums = {};
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    Floats p = Exp(LoadPart(scores + i, left, 0.0F) * scale - max);
    for (int64_t j = left; j < kLanes; ++j) p[j] = 0.0F;
    sums += p;
    StorePart(p, left, scores + i);
  }
  const float sum = Sum(sums);
  const float share = 1.0F / sum;
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    StorePart(LoadPart(scores + i, left, 0.0F) * share, left, scores + i);
  }
  return max + __builtin_logf(sum);
}

void SoftenBackward(
    float logsumexp, int64_t size, float scale, float* scores, float* grad) {
  Floats sums = {};
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    Floats p = Exp(LoadPart(scores + i, left, 0.0F) * scale - logsumexp);
    for (int64_t j = left; j < kLanes; ++j) p[j] = 0.0F;
    sums += p * LoadPart(grad + i, left, 0.0F);
    StorePart(p, left, scores + i);
  }
  const float mean = Sum(sums);
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t left = size - i;
    const Floats p = LoadPart(scores + i, left, 0.0F);
    StorePart(p * (LoadPart(grad + i, left, 0.0F) - mean), left, grad + i);
  }
}

template <typename T>
TrainingRowsOf<T> RowsOf() {
  return {Norm<T>,
          AddNormBackward<T>,
          NormBackward<T>,
          Rotate<T>,
          Gated<T>,
          GatedBackward<T>,
          Widen<T>,
          Narrow<T>};
}

}  // namespace

TrainingRowKernel MakeTrainingRowKernel() {
  return {RowsOf<float>(), RowsOf<BFloat16>(), Soften, SoftenBackward};
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
