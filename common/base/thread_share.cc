#include "common/base/thread_share.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "absl/strings/numbers.h"

namespace dapd {
namespace {

int64_t ThreadsOfThisProcess() {
  const char* limit = std::getenv("OMP_NUM_THREADS");
  int64_t threads = 0;
  if (limit != nullptr && absl::SimpleAtoi(limit, &threads) && threads > 0) {
    return threads;
  }
  return std::thread::hardware_concurrency();
}

}  // namespace

int64_t ThreadsOfEach(int64_t processes) {
  return std::max<int64_t>(1, ThreadsOfThisProcess() / processes);
}

}  // namespace dapd
