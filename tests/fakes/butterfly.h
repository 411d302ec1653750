// Adds numbers in the order of the lanes of a CUDA warp, or of a part of it.
#pragma once

#include <cstddef>
#include <vector>

namespace dapd {

// Returns the sum of the lanes' numbers, whose count is a power of two. A
// butterfly adds them: every lane gets the same bits.
inline float Butterfly(std::vector<float> lanes) {
  for (size_t step = lanes.size() / 2; step > 0; step /= 2) {
    const std::vector<float> before = lanes;
    for (size_t i = 0; i < lanes.size(); ++i) {
      lanes[i] = before[i] + before[i ^ step];
    }
  }
  return lanes[0];
}

}  // namespace dapd
