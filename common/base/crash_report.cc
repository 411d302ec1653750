#include "common/base/crash_report.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/process_end.h"
#include "common/base/process_limits.h"
#include "common/base/this_program.h"
#include "common/base/version.h"

namespace dapd {
namespace {

constexpr int kMaxFrames = 64;
// The time after which a report is given up, because it waits for a lock that
// the crashed thread holds.
constexpr int kMaxSeconds = 5;

// ReportCrashes writes these; the handler, which must not allocate, reads them.
std::array<char, 128> introduction = {};
// If the stack overflowed, the handler needs another stack.
std::array<char, 65536> handler_stack = {};
volatile std::sig_atomic_t reported = 0;
// The name of the program, for an end by an exception.
std::string& program_name = *new std::string;
std::terminate_handler usual_end = nullptr;

void Write(const char* text) {
  // No error can be reported any more.
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, text, std::strlen(text));
}

// Writes the function, if its program or library names it, and then file and
// address.
void WriteFrame(void* frame) {
  std::array<char, 1024> name = {};
  // A return address may lie behind the end of the calling function.
  if (absl::Symbolize(
          static_cast<char*>(frame) - 1, name.data(), name.size())) {
    Write(name.data());
    Write(" ");
  }
  ::backtrace_symbols_fd(&frame, 1, STDERR_FILENO);
}

// Ends the process by the default action of the signal, which the handler has
// replaced. The first process of a container is not ended by a signal that it
// sends itself.
[[noreturn]] void End(int signal_number) {
  ::raise(signal_number);
  ::_exit(CodeOfSignal(signal_number));
}

void Report(int signal_number) {
  reported = signal_number;
  ::signal(SIGALRM, [](int) { End(reported); });
  ::alarm(kMaxSeconds);
  Write(introduction.data());
  Write(FaultName(signal_number));
  Write(". Its stack:\n");
  std::array<void*, kMaxFrames> frames = {};
  const int count = ::backtrace(frames.data(), kMaxFrames);
  // The first one is this function.
  for (int i = 1; i < count; ++i) WriteFrame(frames[i]);
  End(signal_number);
}

// Instead of std::terminate's own end, for an exception that nobody caught.
[[noreturn]] void EndUncaught() {
  try {
    if (const std::exception_ptr uncaught = std::current_exception()) {
      std::rethrow_exception(uncaught);
    }
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      Write(absl::StrCat(program_name, ": ", TooFewThreads(), "\n").c_str());
      ::_exit(static_cast<int>(ExitCode::kConfig));
    }
  } catch (...) {
    // The usual end tells of it.
  }
  usual_end();
  std::abort();
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
  absl::InitializeSymbolizer(program.c_str());
  stack_t stack = {};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  ::sigaltstack(&stack, nullptr);
  for (const int fault : kFaultSignals) {
    struct sigaction present = {};
    ::sigaction(fault, nullptr, &present);
    if (present.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_handler = Report;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
    ::sigaction(fault, &action, nullptr);
  }
  ::signal(SIGXFSZ, SIG_IGN);
  program_name = program;
  usual_end = std::set_terminate(EndUncaught);
}

}  // namespace dapd
