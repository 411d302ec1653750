// The limits on threads and open files of this process and its children. A
// process that reaches one of them ends in the middle of its work, with some
// libraries without any message.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace dapd {

struct ProcessNeeds {
  int64_t threads = 0;  // that are started, by all processes together
  int64_t files = 0;    // open in the one process that has most of them
};

// Returns FAILED_PRECONDITION (exit code kConfig) if too few threads may be
// started or too few files opened. The message has the limit, the place where
// it is set, and the number that is needed. Threads are limited by pids.max of
// each control group of this process, less the threads that run there, and by
// ulimit -u, less the threads of this user; the latter does not limit root. For
// files the hard limit counts, since services raise their own. `root` means the
// same as in ControlGroups.
absl::Status CheckProcessLimits(const ProcessNeeds& needs,
                                const std::string& root = "/");

// Returns the sentence for a thread that could not be started.
std::string TooFewThreads();

}  // namespace dapd
