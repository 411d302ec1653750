// How processes that compute on one machine share its cores.
#pragma once

#include <cstdint>
#include <string>

namespace dapd {

// The cores that this process may use: those that it may run on (cpusets,
// taskset), or fewer where a control group that it is in (docker run --cpus, a
// Kubernetes limit) has less of their time; a part of a core counts as one. At
// least one. `root`: as for ControlGroups.
int64_t UsableCores(const std::string& root = "/");

// Compute threads for each of `processes`; at least one. Shares those of
// OMP_NUM_THREADS, or else one for each usable core.
int64_t ThreadsOfEach(int64_t processes);

}  // namespace dapd
