#include "services/cli/crash_text.h"

#include <csignal>

#include "absl/strings/str_cat.h"

#include "common/base/process_end.h"
#include "common/kernels/cpu_features.h"

namespace dapd {
namespace {

// The vendors' name of the instruction set.
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

std::string HowItDied(const ChildProcess& process, int code) {
  if (code != CodeOfSignal(SIGILL)) return process.HowItEnded(code);
  return absl::StrCat(process.HowItEnded(code),
                      " (an instruction that this processor lacks; it has ",
                      InstructionSet(MachineCpuLevel()),
                      ")");
}

std::string FateOf(const ChildProcess& process,
                   int code,
                   const Restarts& restarts) {
  const int count = IsCrash(code) ? restarts.crashes() : restarts.ends();
  return absl::StrCat(
      process.name(),
      " ",
      HowItDied(process, code),
      count > 1
          ? absl::StrCat(
                ", ", count, " times in a row with no work done in between")
          : "");
}

std::string CrashText(const ChildProcess& process,
                      int code,
                      const Restarts& restarts) {
  return absl::StrCat(FateOf(process, code, restarts),
                      "; please report it with ",
                      process.log_path().empty() ? "its stack, which is above"
                                                 : EndOfLog(process));
}

std::string EndOfLog(const ChildProcess& process) {
  return absl::StrCat(
      "the end of its log (", process.log_path(), "):\n  ", process.LogTail());
}

}  // namespace dapd
