// What a loop's body threw, carried from the thread that ran it to the one that
// waits for the loop: an exception that left another thread would end the
// process.
#pragma once

#include <atomic>
#include <exception>

namespace dapd {

class LoopFailure {
 public:
  // Within a handler, on any thread: keeps the exception if it is the first.
  void Keep() noexcept {
    if (!is_kept_.test_and_set()) first_ = std::current_exception();
  }

  // Throws what was kept, if anything; once every thread has left the loop.
  void Rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::atomic_flag is_kept_;
  std::exception_ptr first_;
};

}  // namespace dapd
