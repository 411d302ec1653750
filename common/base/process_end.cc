#include "common/base/process_end.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"

namespace dapd {

const char* FaultName(int signal_number) {
  switch (signal_number) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGILL:
      return "SIGILL";
    case SIGFPE:
      return "SIGFPE";
    case SIGABRT:
      return "SIGABRT";
    case SIGTRAP:
      return "SIGTRAP";
    default:
      return nullptr;
  }
}

bool IsCrash(int code) {
  return std::ranges::any_of(kFaultSignals, [code](int signal_number) {
    return code == CodeOfSignal(signal_number);
  });
}

bool IsKill(int code) {
  return code > CodeOfSignal(0) && code <= CodeOfSignal(SIGRTMAX) &&
         code != static_cast<int>(ExitCode::kInterrupted) && !IsCrash(code);
}

std::string HowItEnded(int code) {
  if (IsCrash(code)) {
    return absl::StrCat("crashed by ", FaultName(code - CodeOfSignal(0)));
  }
  if (!IsKill(code)) return absl::StrCat("ended with code ", code);
  const int number = code - CodeOfSignal(0);
  const char* name = ::sigabbrev_np(number);
  return absl::StrCat("was killed by signal ",
                      number,
                      name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
}

}  // namespace dapd
