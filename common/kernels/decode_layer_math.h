// The element-wise mathematics of a decoder layer as the CUDA kernels compute
// it. T is float or BFloat16. Every intermediate that LibTorch's operations
// round to T (decoder_layer.cc, rope.cc) is rounded here at the same place, so
// that both paths agree except for the order of their sums.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/kernels/bfloat16.h"

namespace dapd {

// Returns the scale of RMSNorm (Zhang & Sennrich 2019): 1 / sqrt(mean(x^2) +
// eps).
DAPD_HOST_DEVICE inline float NormScale(float sum_of_squares,
                                        int64_t size,
                                        float eps) {
  return 1.0F / sqrtf(sum_of_squares / static_cast<float>(size) + eps);
}

template <typename T>
DAPD_HOST_DEVICE inline T Normalized(float x, float scale, T weight) {
  return FromFloat<T>(ToFloat(weight) * RoundedTo<T>(x * scale));
}

// Returns an entry of the residual stream after a layer's output `delta` (and
// its bias, or 0) is added.
template <typename T>
DAPD_HOST_DEVICE inline T AddResidual(T x, T delta, float bias) {
  return FromFloat<T>(ToFloat(x) + RoundedTo<T>(ToFloat(delta) + bias));
}

// Rotary embedding (Su et al. 2021), half-split: dimension i (`first`) turns
// with dimension i + head_dim / 2 (`second`).
struct RotatedPair {
  float first;
  float second;
};
template <typename T>
DAPD_HOST_DEVICE inline RotatedPair Rotate(float first,
                                           float second,
                                           T cosine,
                                           T sine) {
  const float c = ToFloat(cosine);
  const float s = ToFloat(sine);
  return {
      RoundedTo<T>(RoundedTo<T>(first * c) + RoundedTo<T>(-second * s)),
      RoundedTo<T>(RoundedTo<T>(second * c) + RoundedTo<T>(first * s)),
  };
}

// Returns SwiGLU (Shazeer 2020): silu(gate) * up.
template <typename T>
DAPD_HOST_DEVICE inline T Gated(float gate, float up) {
  const float silu = RoundedTo<T>(gate / (1.0F + expf(-gate)));
  return FromFloat<T>(silu * up);
}

}  // namespace dapd
