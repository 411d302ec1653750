#include "services/cli/crash_text.h"

#include <csignal>

#include "absl/strings/str_cat.h"

#include "common/base/process_end.h"
#include "common/kernels/cpu_features.h"

namespace dapd {
namespace {

// As its makers call it.
const char* InstructionSet(CpuLevel level) {
  switch (level) {
    case CpuLevel::kBaseline:
      return "no AVX2";
    case CpuLevel::kAvx2:
      return "AVX2";
    case CpuLevel::kAvx512:
      return "AVX-512";
    case CpuLevel::kAvx512Bf16:
      return "AVX-512 with BF16";
    case CpuLevel::kAmx:
      return "AMX";
  }
  return "";
}

}  // namespace

std::string HowItCrashed(int code) {
  if (code != CodeOfSignal(SIGILL)) return HowItEnded(code);
  return absl::StrCat(HowItEnded(code),
                      " (an instruction that this processor lacks; it has ",
                      InstructionSet(MachineCpuLevel()),
                      ")");
}

std::string CrashText(const ChildProcess& process, int code, int count) {
  return absl::StrCat(process.name(),
                      " ",
                      HowItCrashed(code),
                      count > 1
                          ? absl::StrCat(", ",
                                         count,
                                         " times in a row with no work done "
                                         "in between")
                          : "",
                      "; please report it with ",
                      process.log_path().empty() ? "its stack, which is above"
                                                 : EndOfLog(process));
}

std::string EndOfLog(const ChildProcess& process) {
  return absl::StrCat(
      "the end of its log (", process.log_path(), "):\n  ", process.LogTail());
}

}  // namespace dapd
