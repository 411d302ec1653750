// How a process ended, by the number that ChildProcess::Poll, a shell and
// Slurm's srun give for it: its exit code, or 128 plus the number of the signal
// that ended it.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace dapd {

// The signals that end a process for a fault of its own.
inline constexpr std::array<int, 6> kFaultSignals = {
    SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};

// The number that ChildProcess::Poll gives for a process that this signal
// ended.
constexpr int CodeOfSignal(int signal_number) { return 128 + signal_number; }

// "SIGSEGV"; null for a signal that is none of these. May be called in a
// handler of signals.
const char* FaultName(int signal_number);

// Whether the process crashed: a fault of its own ended it.
bool IsCrash(int code);

// Whether a signal that is none of these ended it: somebody else did, the
// kernel for want of memory among them. 130 is no kill: ExitCode::kInterrupted
// has that number.
bool IsKill(int code);

// For the end of a sentence that begins with the process's name: "crashed by
// SIGSEGV", "was killed by signal 9 (SIGKILL)", "ended with code 3".
std::string HowItEnded(int code);

}  // namespace dapd
