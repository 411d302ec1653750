// The words of `dapd run` about a process that died.
#pragma once

#include <string>

#include "common/base/child_process.h"
#include "services/cli/restarts.h"

namespace dapd {

// For the end of a sentence that begins with the process's name, as
// ChildProcess::HowItEnded. Of SIGILL also what this machine's processor has:
// "crashed by SIGILL (an instruction that this processor lacks; it has AVX2)".
std::string HowItDied(const ChildProcess& process, int code);

// The same with its name and, from the second time on, how often: "teacher-0
// was killed by signal 9 (SIGKILL), most likely by the kernel for want of
// memory, 3 times in a row with no work done in between".
std::string FateOf(const ChildProcess& process,
                   int code,
                   const Restarts& restarts);

// `process` crashed with `code` and is not worth another start: its fate, where
// its log is and how it ends. Where it shares our stderr it has written there.
std::string CrashText(const ChildProcess& process,
                      int code,
                      const Restarts& restarts);

// "the end of its log (runs/x/logs/teacher-0.log):" and the lines.
std::string EndOfLog(const ChildProcess& process);

}  // namespace dapd
