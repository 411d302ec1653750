#include "common/base/stop_requests.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace dapd {
namespace {

static_assert(std::atomic<int64_t>::is_always_lock_free,
              "a handler must not wait");

const int64_t kSameNanoseconds = absl::ToInt64Nanoseconds(kSameRequest);
std::atomic<int> requests = 0;
std::atomic<int64_t> counted_at = 0;  // nanoseconds; 0: none yet

// A signal handler may call few functions.
int64_t NowNanoseconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void CountRequest(int /*signal*/) {
  const int64_t now = NowNanoseconds();
  int64_t last = counted_at;
  if (last != 0 && now - last < kSameNanoseconds) return;
  // Another thread may handle another signal at this moment.
  if (counted_at.compare_exchange_strong(last, now)) ++requests;
}

}  // namespace

std::vector<int> StopSignals() {
  std::vector<int> signals = {SIGINT, SIGTERM};
  struct sigaction present = {};
  ::sigaction(SIGHUP, nullptr, &present);
  if (present.sa_handler != SIG_IGN) signals.push_back(SIGHUP);
  return signals;
}

void CatchStopRequests() {
  for (const int signal_number : StopSignals()) {
    struct sigaction action = {};
    action.sa_handler = CountRequest;
    ::sigaction(signal_number, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);
}

int StopRequests() { return requests; }

}  // namespace dapd
