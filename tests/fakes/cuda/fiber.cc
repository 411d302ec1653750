#include "tests/fakes/cuda/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace dapd::fake {

Fiber::Fiber() {
  // A kernel whose frames need more stack is ended by this page, which nobody
  // may touch.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr,
                      kStackBytes + page,
                      PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1,
                      0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
    std::perror("no memory for a fiber's stack");
    std::abort();
  }
  stack_ = static_cast<std::byte*>(memory) + page;
}

Fiber::~Fiber() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  munmap(stack_ - page, kStackBytes + page);
}

void Fiber::Prepare(void (*run)(void*), void* argument) {
  run_ = run;
  argument_ = argument;
  fresh_ = true;
}

// makecontext passes numbers only.
void Fiber::Enter(unsigned high, unsigned low) {
  const auto address = (static_cast<uint64_t>(high) << 32) | low;
  auto* self = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(address));
  self->run_(self->argument_);
  std::abort();
}

void Fiber::Resume() {
  if (_setjmp(resumer_) != 0) return;
  if (!fresh_) _longjmp(self_, 1);
  fresh_ = false;
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(this));
  makecontext(&context_,
              reinterpret_cast<void (*)()>(&Enter),
              2,
              static_cast<unsigned>(address >> 32),
              static_cast<unsigned>(address));
  setcontext(&context_);
}

void Fiber::Pause() {
  if (_setjmp(self_) == 0) _longjmp(resumer_, 1);
}

}  // namespace dapd::fake
