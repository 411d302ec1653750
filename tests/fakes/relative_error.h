// Measures the difference of a tensor from the expected one.
#pragma once

#include "common/tensor/aten.h"
#include "tests/fakes/worse.h"

namespace dapd {

// Returns |ours - expected| / |expected| as vectors in float64, for any dtypes
// and devices; infinity if the result is not a number.
inline double RelativeError(const at::Tensor& ours,
                            const at::Tensor& expected) {
  const at::Tensor wide = expected.cpu().to(at::kDouble);
  return NanIsInfinity(
      ((ours.cpu().to(at::kDouble) - wide).norm() / wide.norm())
          .item<double>());
}

}  // namespace dapd
