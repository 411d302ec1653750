// Simulates a device's side stream (common/tensor/side_stream.h) on the host:
// it counts, records after which work each stream's work comes, and makes a
// copy as late as a device may.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/tensor/side_stream.h"

namespace dapd {

class SimulatedStream final : public SideStream {
 public:
  struct Counts {
    int64_t entries = 0;
    int64_t buffers = 0;
    int64_t copies = 0;
    int64_t waits = 0;     // waits of a host thread
    int64_t computed = 0;  // pieces of work given to the other stream
    int64_t held = 0;      // pieces of work that this stream's next work waits
                           // for
  };

  // Gives the computing stream a piece of work.
  void Compute() {
    MutexLock lock(&mutex_);
    ++counts_.computed;
  }
  Counts counts() const {
    MutexLock lock(&mutex_);
    return counts_;
  }
  // Returns whether the calling thread's work runs on this stream.
  static bool IsEntered() { return depth > 0; }

  std::shared_ptr<void> Enter() override {
    MutexLock lock(&mutex_);
    ++counts_.entries;
    ++depth;
    return {nullptr, [](void*) { --depth; }};
  }
  std::unique_ptr<StreamPoint> Mark() override {
    MutexLock lock(&mutex_);
    return std::make_unique<Point>(
        *this, IsEntered() ? counts_.held : counts_.computed);
  }
  at::Tensor HostBuffer(int64_t bytes) override {
    MutexLock lock(&mutex_);
    ++counts_.buffers;
    return at::full({bytes}, 0xEE, at::kByte);
  }
  void Copy(const at::Tensor& from, const at::Tensor& to) override {
    MutexLock lock(&mutex_);
    ++counts_.copies;
    late_.push_back([from, to]() mutable { to.copy_(from); });
  }

 private:
  class Point final : public StreamPoint {
   public:
    Point(SimulatedStream& stream, int64_t behind)
        : stream_(stream), behind_(behind) {}
    void HoldStream() override {
      MutexLock lock(&stream_.mutex_);
      if (!IsEntered()) return;
      stream_.counts_.held = std::max(stream_.counts_.held, behind_);
    }
    void Wait() override {
      std::vector<std::function<void()>> late;
      {
        MutexLock lock(&stream_.mutex_);
        ++stream_.counts_.waits;
        late = std::exchange(stream_.late_, {});
      }
      for (const auto& copy : late) copy();
    }

   private:
    SimulatedStream& stream_;
    const int64_t behind_;
  };

  static inline thread_local int depth = 0;
  mutable Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> late_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dapd
