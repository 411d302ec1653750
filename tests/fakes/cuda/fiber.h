// A thread of a kernel on the host: a function on a stack of its own that
// continues where it paused when it is resumed.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace dapd::fake {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next Resume begin run(argument), whatever the fiber was doing;
  // its stack is dropped without destructors. `run` must not return: its last
  // call is Pause.
  void Prepare(void (*run)(void*), void* argument);
  // Runs it until it pauses.
  void Resume();
  // Returns to the caller of Resume. Must be called on the fiber.
  void Pause();

  bool OnStack(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) -
                               stack_) < kStackBytes;
  }

 private:
  static constexpr size_t kStackBytes = size_t{128} << 10;

  static void Enter(unsigned high, unsigned low);

  std::byte* stack_;
  void (*run_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool fresh_ = true;
  ucontext_t context_;
  // Switching with these needs no system call.
  jmp_buf resumer_;
  jmp_buf self_;
};

}  // namespace dapd::fake
