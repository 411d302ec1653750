// Before anything else of a service runs, the initializers of its libraries
// included: threads that wait for each other are to sleep, not to spin, because
// other services share the machine's cores (common/kernels/parallel_for.h). GNU
// OpenMP, which LibTorch computes with, reads OMP_WAIT_POLICY of the
// environment in its initializer and never again, and the C library sets up the
// environment after this. So a service that was started without the variable
// executes its own file once more, with OMP_WAIT_POLICY=PASSIVE: the same
// process, a few milliseconds older. A user's own setting stays.
//
// A launcher that starts the loader in the program's place
// (deploy/release/launch.sh) sets the variable itself.
//
// Linked into each service as an object, as required_instructions.cc is.
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

// Whether the kernel has loaded this program and, for it, a loader: not where
// it was given the loader alone. The kernel's values lie behind the
// environment.
bool IsOwnExecutable(char** end_of_environment) {
  const auto* value =
      reinterpret_cast<const Elf64_auxv_t*>(end_of_environment + 1);
  for (; value->a_type != AT_NULL; ++value) {
    if (value->a_type == AT_BASE) return value->a_un.a_val != 0;
  }
  return false;
}

// Only system calls, and nothing of a library that may not be initialized yet.
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
