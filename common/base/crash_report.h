// Crash reports: the signal and the stack of a process that crashes.
#pragma once

namespace dapd {

// From now on a signal that ends this process because of its own fault
// (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP) first writes the name of
// the signal and the stack of the failing thread to stderr, as plain text in
// every format of the log:
//   *** dapd-teacher 0.1.0-4c2c51e4 ends by SIGSEGV. Its stack:
//   dapd::ModelScorer::Run() /opt/dapd/libexec/dapd-teacher(+0x41b2c0)[0x55d]
// A line shows the function, unless the file is stripped of its symbols, and
// the file with the address in it, for addr2line. The process then ends by the
// same signal, so exit status and core dump stay the same. Only the first
// process of a container, which its own signals cannot end, exits with 128 plus
// the number of the signal. A stack overflow is reported for the main thread
// only, since other threads have no room for the report. Signals that already
// have a handler (of a sanitizer) are left alone. Call it before any thread
// starts.
//
// A thread that cannot be started is not reported as a crash: the process
// writes one sentence (TooFewThreads) and ends with ExitCode::kConfig, because
// another start would fail in the same way.
//
// SIGXFSZ, which silently ends a process that writes past `ulimit -f`, is
// ignored from now on; the write fails with EFBIG instead.
void ReportCrashes();

}  // namespace dapd
