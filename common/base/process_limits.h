// How many threads this process and its children may start, and how many files
// they may have open: a process that lacks either ends in the middle of its
// work, some libraries without a word.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace dapd {

struct ProcessNeeds {
  int64_t threads = 0;  // that are started, by all processes together
  int64_t files = 0;    // open in the one process that has most of them
};

// FAILED_PRECONDITION (exit code kConfig), with the limit, where it is set and
// what is needed, if fewer threads may be started or fewer files opened. The
// limits of threads are pids.max of each control group that this process is in,
// less what runs there, and ulimit -u, less what runs of this user, who is
// bound by it unless it is root. The limit of files is the hard one, as
// services raise their own. `root`: as for ControlGroups.
absl::Status CheckProcessLimits(const ProcessNeeds& needs,
                                const std::string& root = "/");

// The one sentence for a thread that could not be started.
std::string TooFewThreads();

}  // namespace dapd
