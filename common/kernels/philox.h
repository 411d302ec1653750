// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
// 3"): the random numbers of sampling, equal on CPU and GPU.
#pragma once

#include <cstdint>

#include "common/kernels/host_device.h"

namespace dapd {

struct PhiloxWords {
  uint32_t word[4];
};

DAPD_HOST_DEVICE inline PhiloxWords Philox(PhiloxWords counter, uint64_t key) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Returns a number in [0, 1) from the first 53 bits.
DAPD_HOST_DEVICE inline double PhiloxUniform(const PhiloxWords& random) {
  const uint64_t bits =
      (static_cast<uint64_t>(random.word[0]) << 32) | random.word[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace dapd
