// How far a program has come, for whoever starts it again when it dies (`dapd
// run`, deploy/slurm). A program that crashes each time before it
// has done anything is not worth another start; one that did some work in
// between is.
//
// The environment variable DAPD_WORK_MARK names a file with one number, which
// only grows. A worker adds one with the first answer or score that its client
// has taken since the program's start. A trainer makes it the number of the
// optimizer step that it has recorded, so that a step which an earlier start
// had recorded already is no work. Without the variable nothing is written.
#pragma once

#include <cstdint>
#include <string>

namespace dapd {

// "DAPD_WORK_MARK=`path`", for the environment of a program.
std::string WorkMarkSetting(const std::string& path);

// The number in the file `path`; 0 without one.
int64_t ReadWorkMark(const std::string& path);

// A worker has served something. Thread-safe; only the first call writes.
void MarkServed();

// The trainer has recorded this step.
void MarkStep(int64_t step);

}  // namespace dapd
