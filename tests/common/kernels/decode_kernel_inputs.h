// CPU levels and numbers for tests of decode kernels
// (common/kernels/decode_kernels.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "common/kernels/cpu_features.h"

namespace dapd {

// Returns the levels that this machine can run.
inline std::vector<CpuLevel> Levels() {
  std::vector<CpuLevel> levels;
  for (int i = 0; i <= static_cast<int>(MachineCpuLevel()); ++i) {
    levels.push_back(static_cast<CpuLevel>(i));
  }
  return levels;
}

// Rounds to the nearest bfloat16, ties to even.
inline float Rounded(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16) & 1U)) &
                              0xFFFF0000U);
}

// Returns normally distributed numbers; with `round`, they are bfloat16 values.
inline std::vector<float> Random(size_t count,
                                 unsigned seed,
                                 bool round = false) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = round ? Rounded(normal(engine)) : normal(engine);
  }
  return values;
}

}  // namespace dapd
