// Shared code of the tests of the kernels on the host: numbers, schedules and
// comparisons of results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/bfloat16.h"
#include "common/kernels/cuda/launch.h"
#include "tests/fakes/cuda/device.h"

namespace dapd::fake {

// Returns random numbers of a normal distribution, rounded to T.
template <typename T>
std::vector<T> RandomNumbers(int64_t size, uint32_t seed, float spread = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<T> numbers(static_cast<size_t>(size));
  for (T& number : numbers) number = FromFloat<T>(spread * normal(random));
  return numbers;
}

// Returns rows of `size` numbers that are `stride` numbers apart.
template <typename T>
std::vector<T> Spread(const std::vector<T>& rows,
                      int64_t size,
                      int64_t stride) {
  const int64_t count = static_cast<int64_t>(rows.size()) / size;
  std::vector<T> spread(static_cast<size_t>(count * stride));
  for (int64_t r = 0; r < count; ++r) {
    std::copy_n(rows.begin() + r * size, size, spread.begin() + r * stride);
  }
  return spread;
}
template <typename T>
std::vector<T> Gathered(const std::vector<T>& spread,
                        int64_t size,
                        int64_t stride) {
  std::vector<T> rows;
  for (size_t i = 0; i < spread.size(); i += static_cast<size_t>(stride)) {
    rows.insert(rows.end(),
                spread.begin() + static_cast<int64_t>(i),
                spread.begin() + static_cast<int64_t>(i) + size);
  }
  return rows;
}
// Forbids the gaps between these rows.
template <typename T>
void ForbidBeside(int64_t rows,
                  int64_t size,
                  int64_t stride,
                  DeviceBuffer<T>* buffer) {
  for (int64_t r = 0; r < rows && stride > size; ++r) {
    buffer->Forbid(r * stride + size, stride - size);
  }
}

template <typename T>
constexpr CudaNumber NumberOf() {
  return std::is_same_v<T, float> ? CudaNumber::kFloat32
                                  : CudaNumber::kBFloat16;
}

// Returns the largest relative error of rounding to T.
template <typename T>
constexpr double UnitRoundoff() {
  return std::is_same_v<T, float> ? 0x1.0p-24 : 0x1.0p-8;
}

template <typename T>
uint32_t BitsOf(T value) {
  return BitsOfFloat(ToFloat(value));
}

// Calls `run` under several schedules.
template <typename Run>
void InSeveralOrders(const Run& run) {
  for (uint32_t seed = 1; seed <= 2; ++seed) {
    SetSchedule(seed);
    run();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace dapd::fake

// Checks a launcher's result: the kernels were launched and made no error.
#define ASSERT_KERNEL_RUNS(call)                           \
  do {                                                     \
    const int code = (call);                               \
    const std::string report = ::dapd::fake::TakeReport(); \
    ASSERT_EQ(report, "");                                 \
    ASSERT_EQ(code, 0);                                    \
  } while (false)
