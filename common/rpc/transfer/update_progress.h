// UpdateProgress: how much of a PolicyUpdate its producer has written, so that
// sending can start while later layers are still with the optimizer.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "common/base/mutex.h"

namespace dapd {

// What was written before Advance or Finish is seen by whoever waited for it.
// Thread-safe. One producer, any number of readers.
class UpdateProgress {
 public:
  // The first `bytes` of the adapter's tensors are final; never fewer than
  // before.
  void Advance(uint64_t bytes) {
    MutexLock lock(&mutex_);
    bytes_ = bytes;
    changed_.NotifyAll();
  }
  // All is final, digest and probe too.
  void Finish() {
    MutexLock lock(&mutex_);
    finished_ = true;
    changed_.NotifyAll();
  }
  // The rest never comes. Nothing after Finish.
  void Abandon() {
    MutexLock lock(&mutex_);
    abandoned_ = !finished_;
    changed_.NotifyAll();
  }

  // Blocks until the first `bytes` are final. ABORTED after Abandon.
  absl::Status WaitFor(uint64_t bytes) const {
    MutexLock lock(&mutex_);
    while (bytes_ < bytes && !abandoned_) changed_.Wait(&mutex_);
    return End();
  }
  // Blocks until all is final. ABORTED after Abandon.
  absl::Status WaitUntilFinished() const {
    MutexLock lock(&mutex_);
    while (!finished_ && !abandoned_) changed_.Wait(&mutex_);
    return End();
  }

 private:
  absl::Status End() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return abandoned_ ? absl::AbortedError("writing the weights was abandoned")
                      : absl::OkStatus();
  }

  mutable Mutex mutex_;
  mutable CondVar changed_;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dapd
