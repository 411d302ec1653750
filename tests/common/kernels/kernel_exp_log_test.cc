// Compares KernelExp and KernelLog (divergence_kernel.h) with the C library in
// double precision.
#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/divergence_kernel.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The unit is the last place of `exact(x)`.
template <typename Function>
void ExpectWithinTwoUnits(const std::vector<float>& x,
                          const std::vector<float>& y,
                          const Function& exact) {
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(static_cast<double>(x[i]));
    const auto rounded = static_cast<float>(std::abs(expected));
    const double unit =
        std::nextafter(rounded, kInfinity) - static_cast<double>(rounded);
    worst = Worse(worst, std::abs(y[i] - expected) / unit);
  }
  std::cout << "worst error " << worst << " units in the last place\n";
  EXPECT_LT(worst, 2.0);
}

TEST(KernelLogTest, IsWithinTwoUnitsInTheLastPlace) {
  std::vector<float> x;
  for (double value = 1e-30; value < 1e30; value *= 1.00137) {
    x.push_back(static_cast<float>(value));
  }
  for (double value = 0.3; value < 1.7; value += 0.0000913) {
    x.push_back(static_cast<float>(value));
  }
  std::vector<float> y(x.size());
  KernelLog(x.data(), static_cast<int64_t>(x.size()), y.data());
  ExpectWithinTwoUnits(x, y, [](double value) { return std::log(value); });
}

TEST(KernelExpTest, IsWithinTwoUnitsInTheLastPlace) {
  std::vector<float> x;
  for (double value = -86.9; value < 20.0; value += 0.000913) {
    x.push_back(static_cast<float>(value));
  }
  std::vector<float> y(x.size());
  KernelExp(x.data(), static_cast<int64_t>(x.size()), y.data());
  ExpectWithinTwoUnits(x, y, [](double value) { return std::exp(value); });
  const float edges[] = {-100.0F, -kInfinity, 0.0F};
  float result[3];
  KernelExp(edges, 3, result);
  EXPECT_EQ(result[0], 0.0F);
  EXPECT_EQ(result[1], 0.0F);
  EXPECT_EQ(result[2], 1.0F);
}

}  // namespace
}  // namespace dapd
