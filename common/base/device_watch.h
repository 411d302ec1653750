// DeviceWatch: decides from the results of computations whether the device of
// this process still works. A GPU whose context is lost never works again in
// the same process, so the process should end and be started again instead of
// answering with errors for ever.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"

namespace dapd {

// Not thread-safe: owned by the compute thread.
class DeviceWatch {
 public:
  // This many consecutive computations with INTERNAL errors mean that the
  // device is broken.
  static constexpr int kFailures = 3;

  // `on_broken` may be empty. It is called with the reason: at once for ABORTED
  // (CatchTorch reports a lost device with it), and after kFailures consecutive
  // INTERNAL errors.
  explicit DeviceWatch(std::function<void(const absl::Status& why)> on_broken)
      : on_broken_(std::move(on_broken)) {}

  // Takes the result of a computation. Too little memory and an adapter that
  // does not fit are not faults of the device.
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
