// What `dapd run` says of a process that crashed.
#pragma once

#include <string>

#include "common/base/child_process.h"

namespace dapd {

// For the end of a sentence that begins with the process's name, as HowItEnded
// (common/base/process_end.h). Of SIGILL also what this machine's processor
// has: "crashed by SIGILL (an instruction that this processor lacks; it has
// AVX2)".
std::string HowItCrashed(int code);

// `process` crashed with `code` for the `count`-th time in a row, and did no
// work in between; where its log is and how it ends. Where it shares our stderr
// it has written there.
std::string CrashText(const ChildProcess& process, int code, int count);

// "the end of its log (runs/x/logs/teacher-0.log):" and the lines.
std::string EndOfLog(const ChildProcess& process);

}  // namespace dapd
