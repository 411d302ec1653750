// Describes how a process ended, by the number that ChildProcess::Poll, a shell
// and Slurm's srun give for it: its exit code, or 128 plus the number of the
// signal that ended it.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace dapd {

// The signals that end a process because of its own fault.
inline constexpr std::array<int, 6> kFaultSignals = {
    SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};

// Returns the code that ChildProcess::Poll gives for a process that this signal
// ended.
constexpr int CodeOfSignal(int signal_number) { return 128 + signal_number; }

// Returns "SIGSEGV"; null for a signal that does not mean a crash. It may be
// called in a signal handler.
const char* FaultName(int signal_number);

// Returns whether the process crashed: one of these signals ended it.
bool IsCrash(int code);

// Returns whether another signal ended the process, sent by another process, or
// by the kernel for want of memory. 130 does not count, since it is
// ExitCode::kInterrupted.
bool IsKill(int code);

// Returns the end of a sentence that begins with the process's name: "crashed
// by SIGSEGV", "was killed by signal 9 (SIGKILL)", "ended with code 3".
std::string HowItEnded(int code);

}  // namespace dapd
