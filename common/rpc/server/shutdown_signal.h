// The signals that ask a process to stop (common/base/stop_requests.h): the
// first asks it to end in good order; the second ends it at once with exit code
// 130. A signal within kSameRequest of the first counts as the first.
//
// Make one object in main() before any other thread starts: it blocks these
// signals in this thread, and new threads inherit this. From then on SIGPIPE is
// ignored. Thread-safe. Only one object may exist at a time.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"

#include "common/base/mutex.h"

namespace dapd {

class ShutdownSignal {
 public:
  // `on_first`, if given, runs once, on the signal thread.
  explicit ShutdownSignal(std::function<void()> on_first = {});
  ~ShutdownSignal();
  ShutdownSignal(const ShutdownSignal&) = delete;
  ShutdownSignal& operator=(const ShutdownSignal&) = delete;

  bool requested() const { return requested_.load(); }

  // Blocks until the first signal, or Request().
  void Wait();
  // Blocks for at most `timeout`; returns requested().
  bool WaitFor(absl::Duration timeout);

  // Has the effect of the first signal.
  void Request();

 private:
  void Watch();

  const std::function<void()> on_first_;
  std::atomic<bool> requested_ = false;
  Mutex mutex_;
  CondVar changed_;
  int signal_descriptor_ = -1;
  int stop_descriptor_ = -1;
  std::jthread thread_;
};

}  // namespace dapd
