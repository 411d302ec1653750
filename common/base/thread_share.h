// How processes that compute on one machine share its cores.
#pragma once

#include <cstdint>

namespace dapd {

// Compute threads for each of `processes`; at least one. Shares those of
// OMP_NUM_THREADS, which knows a container's limit, or one for each core.
int64_t ThreadsOfEach(int64_t processes);

}  // namespace dapd
