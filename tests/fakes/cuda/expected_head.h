// Computes one head of queries, keys or values of decoding on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/kernels/bfloat16.h"
#include "common/kernels/decode_layer_math.h"
#include "tests/fakes/butterfly.h"

namespace dapd::fake {

// The result of the kernel of queries, keys and values for one head: bias, norm
// and rotation, in the order of a warp's sums, and the same in float64
// (`exact`).
template <typename T>
struct ExpectedHead {
  std::vector<T> rounded;
  std::vector<double> exact;
  double size = 0.0;  // of the largest intermediate number

  ExpectedHead(const T* in,
               const T* bias,
               const T* norm,
               const T* cosine,  // null for a value, which is not rotated
               const T* sine,
               int64_t dim,
               float eps) {
    const int64_t half = dim / 2;
    std::vector<float> x;
    std::vector<double> y;
    for (int64_t i = 0; i < dim; ++i) {
      const float value = ToFloat(in[i]);
      x.push_back(bias == nullptr ? value
                                  : RoundedTo<T>(value + ToFloat(bias[i])));
      y.push_back(static_cast<double>(value) +
                  (bias == nullptr ? 0.0F : ToFloat(bias[i])));
    }
    if (norm != nullptr) {
      std::vector<float> lanes(32, 0.0F);
      double squares = 0.0;
      for (int64_t i = 0; i < half; ++i) {
        float& lane = lanes[static_cast<size_t>(i % 32)];
        lane = fmaf(x[i], x[i], lane);
        lane = fmaf(x[i + half], x[i + half], lane);
        squares += y[i] * y[i] + y[i + half] * y[i + half];
      }
      const float scale = NormScale(Butterfly(lanes), dim, eps);
      const double exact_scale =
          1.0 / std::sqrt(squares / static_cast<double>(dim) + eps);
      for (int64_t i = 0; i < dim; ++i) {
        x[i] = ToFloat(Normalized(x[i], scale, norm[i]));
        y[i] *= exact_scale * ToFloat(norm[i]);
      }
    }
    rounded.resize(static_cast<size_t>(dim));
    exact = y;
    for (int64_t i = 0; i < half; ++i) {
      RotatedPair pair{x[i], x[i + half]};
      if (cosine != nullptr) {
        pair = Rotate(x[i], x[i + half], cosine[i], sine[i]);
        exact[i] = y[i] * ToFloat(cosine[i]) - y[i + half] * ToFloat(sine[i]);
        exact[i + half] =
            y[i + half] * ToFloat(cosine[i]) + y[i] * ToFloat(sine[i]);
      }
      rounded[i] = FromFloat<T>(pair.first);
      rounded[i + half] = FromFloat<T>(pair.second);
    }
    for (const double value : y) size = std::max(size, std::abs(value));
    for (int64_t i = 0; i < dim && bias != nullptr; ++i) {
      size = std::max<double>(size, std::abs(ToFloat(in[i])));
    }
  }
};

}  // namespace dapd::fake
