// How processes that compute on one machine share its cores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

namespace dapd {

// Compute threads for each of `processes`; at least one.
inline int64_t ThreadsOfEach(int64_t processes) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  return std::max<int64_t>(1, cores / processes);
}

}  // namespace dapd
