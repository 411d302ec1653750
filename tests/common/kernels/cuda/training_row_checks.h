// Checks shared by the tests of training_rows.h on the simulated device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/bfloat16.h"
#include "tests/fakes/cuda/device.h"
#include "tests/fakes/cuda/kernel_inputs.h"

namespace dapd {

inline constexpr float kRowEps = 1e-6F;

template <typename T>
std::vector<double> Wide(const std::vector<T>& values) {
  std::vector<double> wide;
  for (const T value : values) wide.push_back(ToFloat(value));
  return wide;
}

template <typename T>
std::vector<float> Floats(const std::vector<T>& values) {
  std::vector<float> floats;
  for (const T value : values) floats.push_back(ToFloat(value));
  return floats;
}

// Returns the largest difference, relative to the largest number.
template <typename T>
double Error(const std::vector<T>& ours, const std::vector<double>& exact) {
  double worst = 0.0;
  double largest = 1e-30;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(ToFloat(ours[i]) - exact[i]);
    if (!(error <= worst)) worst = error;
    largest = std::max(largest, std::abs(exact[i]));
  }
  return worst / largest;
}

// Allows a few roundings to T or of a float32 sum.
template <typename T>
double Limit() {
  return std::max(4.0 * fake::UnitRoundoff<T>(), 2e-6);
}

// Computes RMSNorm of one row, and its gradient, in double precision.
struct ExactNorm {
  std::vector<double> y;
  std::vector<double> grad;

  ExactNorm(const double* x,
            const double* weight,
            const double* grad_y,
            int64_t size) {
    double squares = 0.0;
    double products = 0.0;
    for (int64_t i = 0; i < size; ++i) {
      squares += x[i] * x[i];
      products += grad_y[i] * weight[i] * x[i];
    }
    const auto n = static_cast<double>(size);
    const double r =
        1.0 / std::sqrt(squares / n + static_cast<double>(kRowEps));
    for (int64_t i = 0; i < size; ++i) {
      y.push_back(weight[i] * x[i] * r);
      grad.push_back(r * (grad_y[i] * weight[i] - x[i] * r * r * products / n));
    }
  }
};

template <typename T>
void ExpectTraffic(int64_t reads, int64_t writes, int64_t shared_reads) {
  const fake::Traffic traffic = fake::TakeTraffic();
  const auto bytes = [](int64_t count) {
    return static_cast<uint64_t>(count) * sizeof(T);
  };
  EXPECT_EQ(traffic.bytes_written, bytes(writes));
  EXPECT_GE(traffic.bytes_read, bytes(reads));
  EXPECT_LE(traffic.bytes_read, bytes(reads + shared_reads));
}

}  // namespace dapd
