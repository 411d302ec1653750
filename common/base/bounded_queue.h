// BoundedQueue: the only way work passes between threads here.
//
// A first-in first-out queue with a fixed capacity. Push blocks while the queue
// is full, Pop while it is empty; Close() ends every wait. Items that were
// pushed before Close() can still be popped. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/base/steady_time.h"

namespace dapd {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Blocks while full. Returns false, dropping `item`, once closed.
  bool Push(T item) {
    MutexLock lock(&mutex_);
    while (!closed_ && items_.size() >= capacity_) not_full_.Wait(&mutex_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    not_empty_.NotifyOne();
    return true;
  }

  // Never blocks. Returns false, leaving `item` untouched, if full or closed.
  bool TryPush(T&& item) {
    MutexLock lock(&mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    not_empty_.NotifyOne();
    return true;
  }

  // Pushes, and waits at most `timeout` for room. Returns false, leaving `item`
  // untouched, if the queue is still full then, or closed.
  bool PushFor(T& item, absl::Duration timeout) {
    MutexLock lock(&mutex_);
    const absl::Time deadline = SteadyNow() + timeout;
    while (!closed_ && items_.size() >= capacity_) {
      const absl::Duration left = deadline - SteadyNow();
      if (left <= absl::ZeroDuration()) return false;
      not_full_.WaitFor(&mutex_, left);
    }
    if (closed_) return false;
    items_.push_back(std::move(item));
    not_empty_.NotifyOne();
    return true;
  }

  // Blocks while empty. Returns nothing once closed and drained.
  std::optional<T> Pop() {
    MutexLock lock(&mutex_);
    while (!closed_ && items_.empty()) not_empty_.Wait(&mutex_);
    return TakeFront();
  }

  // Pops, and waits at most `timeout` for an item (zero: does not wait).
  std::optional<T> PopFor(absl::Duration timeout) {
    MutexLock lock(&mutex_);
    const absl::Time deadline = SteadyNow() + timeout;
    while (!closed_ && items_.empty()) {
      const absl::Duration left = deadline - SteadyNow();
      if (left <= absl::ZeroDuration()) return std::nullopt;
      not_empty_.WaitFor(&mutex_, left);
    }
    return TakeFront();
  }

  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    not_empty_.NotifyAll();
    not_full_.NotifyAll();
  }

  size_t size() const {
    MutexLock lock(&mutex_);
    return items_.size();
  }
  bool closed() const {
    MutexLock lock(&mutex_);
    return closed_;
  }
  // Returns whether the queue is closed and empty. After PopFor has returned
  // nothing, the queue may still have received its last item and then been
  // closed.
  bool drained() const {
    MutexLock lock(&mutex_);
    return closed_ && items_.empty();
  }
  size_t capacity() const { return capacity_; }

 private:
  std::optional<T> TakeFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    not_full_.NotifyOne();
    return item;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar not_empty_;
  CondVar not_full_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dapd
