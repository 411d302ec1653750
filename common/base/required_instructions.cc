// Runs before anything else in a program, even before the initializers of its
// libraries, and checks that the processor has the instructions for which they
// are compiled. Arrow is compiled for SSE4.2 and LibTorch for SSE4.1; on an
// older processor their initializers end with SIGILL before main could report
// anything. Our own code needs nothing beyond x86-64
// (common/kernels/cpu_level_tables.h).
//
// Each program links this file as an object (dapd_program in CMakeLists.txt).
// The dynamic linker calls a function in .preinit_array before the initializers
// of shared libraries; only programs can have one.
#if defined(__x86_64__)

#include <cpuid.h>
#include <unistd.h>

#include "common/base/exit_code.h"

namespace dapd {
namespace {

constexpr unsigned kNeeded = bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT;

constexpr char kMessage[] =
    "dapd: this processor, or the virtual machine's idea of it, lacks SSE4.2 "
    "or POPCNT, which LibTorch and Apache Arrow are compiled for. Processors "
    "since 2011 have them; a virtual machine passes them on with the "
    "processor type 'host' or 'x86-64-v2'.\n";

// Makes system calls only, and calls no library that may not be initialized
// yet.
void RequireInstructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kNeeded) == kNeeded) return;
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(static_cast<int>(ExitCode::kConfig));
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const first)() = RequireInstructions;

}  // namespace
}  // namespace dapd

#endif
