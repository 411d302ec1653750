// LoopFailure carries an exception of a loop's body from the thread that ran it
// to the thread that waits for the loop. An exception that left the first
// thread would end the process.
#pragma once

#include <atomic>
#include <exception>

namespace dapd {

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

}  // namespace dapd
