// Sums as the lanes of a CUDA warp, or of a part of it, take them.
#pragma once

#include <cstddef>
#include <vector>

namespace dapd {

// The sum of the lanes' numbers, a power of two, added as a butterfly: every
// lane gets the same bits.
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
