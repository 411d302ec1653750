// The progress of a program, for the supervisor that restarts it (`dapd run`,
// deploy/slurm). A program that crashes each time before it has done any work
// is not worth another start.
//
// The environment variable DAPD_WORK_MARK names a file with one number, which
// only grows. A worker adds one for the first answer or score that its client
// has taken since the start of the worker. A trainer writes the number of the
// optimizer step that it has recorded; a step that an earlier start recorded is
// not progress. Without the variable nothing is written.
#pragma once

#include <cstdint>
#include <string>

namespace dapd {

// Returns "DAPD_WORK_MARK=`path`", for the environment of a program.
std::string WorkMarkSetting(const std::string& path);

// Returns the number in the file `path`; 0 without one.
int64_t ReadWorkMark(const std::string& path);

// Call it when a worker has served a request. Thread-safe; only the first call
// writes.
void MarkServed();

// Call it when the trainer has recorded this step.
void MarkStep(int64_t step);

}  // namespace dapd
