// The gradients of a decoder layer's element-wise mathematics
// (decode_layer_math.h) as the CUDA kernels compute them: in float32, rounded
// once, when they are stored. training_rows.h computes the same on a CPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/kernels/host_device.h"

namespace dapd {

// RMSNorm is y = weight x r with r = NormScale. NormGradient returns an entry's
// gradient, where g = (dl/dy) weight and `mean` is NormMean.
DAPD_HOST_DEVICE inline float NormMean(float sum_of_products,
                                       float r,
                                       int64_t size) {
  return sum_of_products * r * r / static_cast<float>(size);
}
DAPD_HOST_DEVICE inline float NormGradient(float g,
                                           float x,
                                           float r,
                                           float mean) {
  return (g - x * mean) * r;
}

// The gradient of a pair that Rotate turned: a rotation's transpose turns back.
struct PairGradient {
  float first;
  float second;
};
DAPD_HOST_DEVICE inline PairGradient RotateBack(float first,
                                                float second,
                                                float cosine,
                                                float sine) {
  return {first * cosine + second * sine, second * cosine - first * sine};
}

// The gradients of silu(gate) * up.
struct GatedGradients {
  float gate;
  float up;
};
DAPD_HOST_DEVICE inline GatedGradients GatedBackward(float grad,
                                                     float gate,
                                                     float up) {
  const float sigmoid = 1.0F / (1.0F + expf(-gate));
  return {grad * up * sigmoid * (1.0F + gate * (1.0F - sigmoid)),
          grad * gate * sigmoid};
}

}  // namespace dapd
