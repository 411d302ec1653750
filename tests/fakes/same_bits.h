// Compares two tensors bit by bit. If they differ, says what kind of difference
// it is: another order of a sum, which a library may choose for another place
// or number of rows, or another result.
#pragma once

#include "gtest/gtest.h"

#include "common/tensor/aten.h"

namespace dapd {

inline testing::AssertionResult SameBits(const at::Tensor& found,
                                         const at::Tensor& expected) {
  if (at::equal(found, expected)) return testing::AssertionSuccess();
  if (found.sizes() != expected.sizes()) {
    return testing::AssertionFailure() << "of another shape";
  }
  const at::Tensor wide = expected.to(at::kDouble);
  const at::Tensor difference = (found.to(at::kDouble) - wide).abs();
  const double most = difference.max().item<double>();
  const double largest = wide.abs().max().item<double>();
  // A few layers have this rounding error, relative to the largest number.
  const double rounding = found.scalar_type() == at::kFloat ? 1e-4 : 5e-2;
  return testing::AssertionFailure()
         << difference.ne(0).sum().item<int64_t>() << " of " << found.numel()
         << " numbers differ, by at most " << most << " where the largest is "
         << largest << ": "
         << (most <= rounding * largest ? "another order of sums"
                                        : "another result");
}

}  // namespace dapd
