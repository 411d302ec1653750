#include "common/base/process_end.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

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
  return code == CodeOfSignal(SIGKILL) || code == CodeOfSignal(SIGTERM);
}

std::string HowItEnded(int code) {
  if (IsCrash(code)) {
    return absl::StrCat("crashed by ", FaultName(code - CodeOfSignal(0)));
  }
  if (!IsKill(code)) return absl::StrCat("ended with code ", code);
  return absl::StrCat("was killed by ",
                      code == CodeOfSignal(SIGKILL) ? "SIGKILL" : "SIGTERM");
}

}  // namespace dapd
