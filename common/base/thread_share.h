// Decides how processes that compute on one machine share its cores.
#pragma once

#include <cstdint>
#include <string>

namespace dapd {

// Returns the number of cores that this process may use, at least one: the
// cores on which it may run (cpusets, taskset), or fewer if a control group
// around it (docker run --cpus, a Kubernetes limit) allows less processor time;
// a part of a core counts as one. `root` is as in ControlGroups.
int64_t UsableCores(const std::string& root = "/");

// Returns the number of compute threads, at least one, for each of `processes`,
// which share OMP_NUM_THREADS threads or, without that variable, the usable
// cores.
int64_t ThreadsOfEach(int64_t processes);

}  // namespace dapd
