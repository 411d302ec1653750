#include "common/base/stop_requests.h"

#include <csignal>

namespace dapd {
namespace {

volatile std::sig_atomic_t requests = 0;

void CountRequest(int /*signal*/) { requests = requests + 1; }

}  // namespace

void CatchStopRequests() {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    action.sa_handler = CountRequest;
    ::sigaction(signal_number, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);
}

int StopRequests() { return requests; }

}  // namespace dapd
