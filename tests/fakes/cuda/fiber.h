// A thread of a kernel as the host runs it: a function on a stack of its own
// that goes on where it was when it is resumed.
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

  // Makes it begin with run(argument) when it is next resumed, whatever it was
  // at; what is on its stack is forgotten, no destructor runs. `run` must not
  // return: its last call is Pause.
  void Prepare(void (*run)(void*), void* argument);
  // Runs it until it pauses.
  void Resume();
  // Called on the fiber: back to who resumed it.
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
  // Switching by these costs no system call.
  jmp_buf resumer_;
  jmp_buf self_;
};

}  // namespace dapd::fake
