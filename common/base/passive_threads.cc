// Runs before anything else in a service, even before the initializers of its
// libraries. Threads that wait for each other have to sleep instead of
// spinning, because other services share the cores of the machine
// (common/kernels/parallel_for.h). GNU OpenMP, with which LibTorch computes,
// reads the environment variable OMP_WAIT_POLICY only in its initializer, and
// the C library sets up the environment after this code. So a service that was
// started without the variable executes its own file again with
// OMP_WAIT_POLICY=PASSIVE: the process stays the same and loses a few
// milliseconds. A value that the user has set stays.
//
// A launcher that starts the loader in the program's place
// (deploy/release/launch.sh) sets the variable itself.
//
// Each service links this file as an object, like required_instructions.cc.
#include <elf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstddef>
#include <cstring>

namespace dapd {
namespace {

constexpr char kPassive[] = "OMP_WAIT_POLICY=PASSIVE";
constexpr size_t kNameLength = sizeof("OMP_WAIT_POLICY=") - 1;

// Returns whether the kernel has loaded this program together with a loader;
// false if the kernel was given the loader alone. The values of the kernel
// follow the environment.
bool IsOwnExecutable(char** end_of_environment) {
  const auto* value =
      reinterpret_cast<const Elf64_auxv_t*>(end_of_environment + 1);
  for (; value->a_type != AT_NULL; ++value) {
    if (value->a_type == AT_BASE) return value->a_un.a_val != 0;
  }
  return false;
}

// Makes system calls only, and calls no library that may not be initialized
// yet.
// If the kernel refuses, the service runs as it was started.
void WaitPassively(int /*argc*/, char** argv, char** environment) {
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (std::strncmp(environment[count], kPassive, kNameLength) == 0) return;
  }
  if (!IsOwnExecutable(environment + count)) return;
  auto** extended =
      static_cast<char**>(__builtin_alloca((count + 2) * sizeof(char*)));
  for (size_t i = 0; i < count; ++i) extended[i] = environment[i];
  extended[count] = const_cast<char*>(kPassive);
  extended[count + 1] = nullptr;
  // The program is started by its path, which gives the process its name for
  // ps.
  constexpr char kSelf[] = "/proc/self/exe";
  char path[PATH_MAX + 1] = {};
  if (::syscall(SYS_readlink, kSelf, path, PATH_MAX) > 0) {
    ::syscall(SYS_execve, path, argv, extended);
  }
  ::syscall(SYS_execve, kSelf, argv, extended);
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const first)(int, char**, char**) = WaitPassively;

}  // namespace
}  // namespace dapd
