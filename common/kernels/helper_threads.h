// HelperThreads: threads that help with loops on a machine whose cores other
// processes need, too.
//
// At the end of a parallel region OpenMP waits for every thread of the team,
// even for one that had nothing to do. Where three processes share two cores,
// each region ends only when the kernel has given each thread a time slice, and
// the wake-ups of thousands of regions take most of the time. Here the thread
// that starts a loop runs it, alone if necessary, and waits only for iterations
// that a helper has begun. Idle helpers sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>

#include "absl/base/thread_annotations.h"

#include "common/base/mutex.h"

namespace dapd {

// Carries an exception of a loop's body from the thread that ran it to the
// thread that waits for the loop. An exception that left the first thread would
// end the process.
class LoopFailure {
 public:
  // Keeps the current exception if it is the first. Must be called within a
  // handler; any thread may call it.
  void Keep() noexcept {
    if (!is_kept_.test_and_set()) first_ = std::current_exception();
  }

  // Throws the kept exception, if there is one. Must be called after every
  // thread has left the loop.
  void Rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::atomic_flag is_kept_;
  std::exception_ptr first_;
};

// Thread-safe: several threads may run loops at the same time and share the
// helpers. A loop inside of a loop runs in its thread alone.
class HelperThreads {
 public:
  // Returns the instance of the process. Its threads end with the process.
  static HelperThreads& Instance();

  // Calls body(context, i) for i in [0, count), `piece` consecutive i at a
  // time, on this thread and on up to `helpers` others, which are started when
  // they are first needed. An exception of `body` is thrown again here, as by
  // ParallelRun.
  void Run(int helpers,
           int64_t count,
           int64_t piece,
           void (*body)(const void* context, int64_t i),
           const void* context);

 private:
  struct Loop {
    const int64_t count;
    const int64_t piece;
    void (*const body)(const void* context, int64_t i);
    const void* const context;
    std::atomic<int64_t> next = 0;
    int wanted;      // helpers that may still join; guarded by mutex_
    int inside = 0;  // helpers that have joined and not left; guarded by mutex_
    LoopFailure failure = {};
  };

  HelperThreads() = default;
  void StartThreads(int count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Help();
  static void Work(Loop& loop);

  Mutex mutex_;
  CondVar waiting_;  // signals a loop
  CondVar left_;     // signals that the last helper has left a loop
  // Loops that take more helpers.
  std::deque<Loop*> open_ ABSL_GUARDED_BY(mutex_);
  int num_threads_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dapd
