// DeviceWatch: tells by how computations end whether the device that a process
// computes on still works. A GPU whose context is lost never does again in the
// same process, which should end, to be started again, instead of answering
// with errors for ever.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"

namespace dapd {

// Not thread-safe: owned by the compute thread.
class DeviceWatch {
 public:
  // So many computations that fail one after another with INTERNAL say that
  // something is broken.
  static constexpr int kFailures = 3;

  // `on_broken` may be empty. It gets the reason at once where that is ABORTED
  // (CatchTorch: the device is lost), and of kFailures in a row.
  explicit DeviceWatch(std::function<void(const absl::Status& why)> on_broken)
      : on_broken_(std::move(on_broken)) {}

  // How a computation ended. Too little memory, or an adapter that does not
  // fit, is not the device's.
  void Note(const absl::Status& status) {
    failures_ = absl::IsInternal(status) ? failures_ + 1 : 0;
    const bool broken = absl::IsAborted(status) || failures_ >= kFailures;
    if (broken && on_broken_) on_broken_(status);
  }

 private:
  const std::function<void(const absl::Status& why)> on_broken_;
  int failures_ = 0;  // in a row
};

}  // namespace dapd
