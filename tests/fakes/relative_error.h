// How far a tensor is from the one that it should be.
#pragma once

#include "common/tensor/aten.h"
#include "tests/fakes/worse.h"

namespace dapd {

// |ours - expected| / |expected|, as vectors and in float64, whatever their
// dtypes and devices are. Infinity where that is no number.
inline double RelativeError(const at::Tensor& ours,
                            const at::Tensor& expected) {
  const at::Tensor wide = expected.cpu().to(at::kDouble);
  return NanIsInfinity(
      ((ours.cpu().to(at::kDouble) - wide).norm() / wide.norm())
          .item<double>());
}

}  // namespace dapd
