// The messages of `dapd run` about a process that died.
#pragma once

#include <string>

#include "common/base/child_process.h"
#include "services/cli/restarts.h"

namespace dapd {

// Returns the end of a sentence that begins with the process's name, like
// ChildProcess::HowItEnded. For SIGILL it names this machine's instruction
// sets: "crashed by SIGILL (an instruction that this processor lacks; it has
// AVX2)".
std::string HowItDied(const ChildProcess& process, int code);

// Returns HowItDied with the process's name and, from the second time on, the
// number of times: "teacher-0 was killed by signal 9 (SIGKILL), most likely by
// the kernel for want of memory, 3 times in a row with no work done in
// between".
std::string FateOf(const ChildProcess& process,
                   int code,
                   const Restarts& restarts);

// Returns the message about a process that crashed with `code` and is not
// started again: its fate, the path of its log and the log's end. Without a
// log, its output is already on our stderr.
std::string CrashText(const ChildProcess& process,
                      int code,
                      const Restarts& restarts);

// Returns "the end of its log (runs/x/logs/teacher-0.log):" and the lines.
std::string EndOfLog(const ChildProcess& process);

}  // namespace dapd
