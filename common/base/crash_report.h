// The last words of a process that crashes.
#pragma once

namespace dapd {

// From here on, a signal that ends this process for a fault of its own
// (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP) first writes to stderr
// which one it was and the stack of the thread that met it, as plain text
// whatever the log's format:
//   *** dapd-teacher 0.1.0-4c2c51e4 ends by SIGSEGV. Its stack:
//   dapd::ModelScorer::Run() /opt/dapd/libexec/dapd-teacher(+0x41b2c0)[0x55d]
// A line has the function, where the file has the name (stripped of its symbols
// it has not), and the file with the place in it, for addr2line. The process
// then ends by that signal all the same: exit status and core dump stay what
// they would have been, except in the first process of a container, which no
// signal of its own ends: its exit code is then 128 plus the signal's number.
// Where it is a stack that overflowed, only the main thread's is
// reported: no other has room for the report. A signal that is handled already
// (a sanitizer's) is left alone. To be called before any thread starts.
//
// A thread that cannot be started, which nobody expects, is no crash: the
// process writes one sentence (TooFewThreads) and ends with ExitCode::kConfig,
// since it would end so again.
//
// SIGXFSZ, by which a write past `ulimit -f` ends a process without a word, is
// ignored from here on: the write fails with EFBIG.
void ReportCrashes();

}  // namespace dapd
