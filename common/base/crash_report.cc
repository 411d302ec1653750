#include "common/base/crash_report.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/this_program.h"
#include "common/base/version.h"

namespace dapd {
namespace {

constexpr int kMaxFrames = 64;
// A report that waits for a lock which the crashed thread holds is given up.
constexpr int kMaxSeconds = 5;

struct Fault {
  int signal_number = 0;
  const char* name = nullptr;
};

constexpr std::array<Fault, 6> kFaults = {{{SIGSEGV, "SIGSEGV"},
                                           {SIGBUS, "SIGBUS"},
                                           {SIGILL, "SIGILL"},
                                           {SIGFPE, "SIGFPE"},
                                           {SIGABRT, "SIGABRT"},
                                           {SIGTRAP, "SIGTRAP"}}};

// Written by ReportCrashes, read by the handler, which must not allocate.
std::array<char, 128> introduction = {};
// Where the stack itself is what ran out, the handler needs another one.
std::array<char, 65536> handler_stack = {};

void Write(const char* text) {
  // Nobody is left to be told that it failed.
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, text, std::strlen(text));
}

void Report(int signal_number) {
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(kMaxSeconds);
  Write(introduction.data());
  for (const Fault& fault : kFaults) {
    if (fault.signal_number == signal_number) Write(fault.name);
  }
  Write(". Its stack:\n");
  std::array<void*, kMaxFrames> frames = {};
  ::backtrace_symbols_fd(
      frames.data(), ::backtrace(frames.data(), kMaxFrames), STDERR_FILENO);
  ::raise(signal_number);  // by its default action: SA_RESETHAND
}

}  // namespace

void ReportCrashes() {
  const std::string program =
      std::filesystem::path(ThisProgram()).filename().string();
  absl::StrCat("*** ", program, " ", Version(), " ends by ")
      .copy(introduction.data(), introduction.size() - 1);
  // The first call loads the unwinder, which the handler could not.
  void* frame = nullptr;
  ::backtrace(&frame, 1);
  stack_t stack = {};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  ::sigaltstack(&stack, nullptr);
  for (const Fault& fault : kFaults) {
    struct sigaction present = {};
    ::sigaction(fault.signal_number, nullptr, &present);
    if (present.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_handler = Report;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
    ::sigaction(fault.signal_number, &action, nullptr);
  }
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace dapd
