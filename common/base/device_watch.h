// DeviceWatch: notices when a device computes nothing any more. A CUDA context
// that is lost fails every later computation of its process, which otherwise
// looks healthy. Not thread-safe: of the thread that computes.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"

namespace dapd {

class DeviceWatch {
 public:
  using OnBroken = std::function<void(const absl::Status& why)>;
  // So many failures one after another are the device's.
  static constexpr int kBrokenAfter = 3;

  // `on_broken` is called by Note; empty: nobody is told.
  explicit DeviceWatch(OnBroken on_broken) : on_broken_(std::move(on_broken)) {}

  // How a computation ended. From the kBrokenAfter-th INTERNAL in a row on each
  // further one is reported; anything else begins anew, since too little
  // memory, or an adapter that does not fit, is not the device's fault.
  void Note(const absl::Status& status);

 private:
  const OnBroken on_broken_;
  int failures_ = 0;  // in a row
};

// What a worker does then: ends with code 75, to be started again by whoever
// watches it. Not in an orderly way, since destructors would wait for the
// device.
[[noreturn]] void EndForRestart(const absl::Status& why);

}  // namespace dapd
