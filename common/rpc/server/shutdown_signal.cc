#include "common/rpc/server/shutdown_signal.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/error_output.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/steady_time.h"
#include "common/base/stop_requests.h"

namespace dapd {
namespace {

sigset_t ShutdownSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : StopSignals()) sigaddset(&signals, number);
  return signals;
}

}  // namespace

ShutdownSignal::ShutdownSignal(std::function<void()> on_first)
    : on_first_(std::move(on_first)) {
  const sigset_t signals = ShutdownSignals();
  Check(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0,
        "the signals that stop a process can be blocked");
  ::signal(SIGPIPE, SIG_IGN);
  signal_descriptor_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_descriptor_ = eventfd(0, EFD_CLOEXEC);
  Check(signal_descriptor_ >= 0 && stop_descriptor_ >= 0,
        "a signalfd and an eventfd can be opened");
  thread_ = std::jthread([this] { Watch(); });
}

ShutdownSignal::~ShutdownSignal() {
  const uint64_t one = 1;
  Check(::write(stop_descriptor_, &one, sizeof(one)) == sizeof(one),
        "an eventfd takes 8 bytes");
  thread_.join();
  ::close(signal_descriptor_);
  ::close(stop_descriptor_);
}

void ShutdownSignal::Watch() {
  std::optional<absl::Time> first;
  while (true) {
    pollfd sources[] = {{signal_descriptor_, POLLIN, 0},
                        {stop_descriptor_, POLLIN, 0}};
    if (::poll(sources, 2, -1) < 0) {
      Check(errno == EINTR, "poll fails only when interrupted");
      continue;
    }
    if (sources[1].revents != 0) return;
    signalfd_siginfo info = {};
    if (::read(signal_descriptor_, &info, sizeof(info)) != sizeof(info)) {
      continue;
    }
    const absl::Time now = SteadyNow();
    if (first.has_value()) {
      if (now - *first < kSameRequest) continue;
      LogWarning("second signal: ending at once");
      FlushErrorOutput();
      ::_exit(static_cast<int>(ExitCode::kInterrupted));
    }
    first = now;
    LogInfo("signal received: shutting down (a second one ends at once)");
    Request();
  }
}

void ShutdownSignal::Request() {
  {
    MutexLock lock(&mutex_);
    if (requested_.exchange(true)) return;
    changed_.NotifyAll();
  }
  if (on_first_) on_first_();
}

void ShutdownSignal::Wait() {
  MutexLock lock(&mutex_);
  while (!requested_) changed_.Wait(&mutex_);
}

bool ShutdownSignal::WaitFor(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(&mutex_);
  while (!requested_) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mutex_, left);
  }
  return requested_;
}

}  // namespace dapd
