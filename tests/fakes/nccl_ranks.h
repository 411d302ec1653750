// Simulates NCCL between ranks that are threads of one process, each with its
// own device (cuda_on_host.h). An operation is a launch of that device: when it
// runs, it meets the operations of the other ranks, checks that they are equal,
// and moves or adds the numbers. If the operations differ, or a rank does not
// come, the process ends with a message. If a rank is known to have ended, the
// devices of the others are stuck until they abort.
#pragma once

#include <cstdint>
#include <functional>

namespace dapd {

// Counts of a rank's completed operations.
struct NcclRankWork {
  int64_t broadcasts = 0;  // groups of them, each of which is one launch
  int64_t gathers = 0;     // groups of gathers, each of which is one launch
  int64_t exchanges = 0;
  int64_t sums = 0;
  int64_t bytes_received = 0;  // bytes from the other ranks
};

// Returns the counts of the calling thread.
NcclRankWork& WorkOfNcclRank();

// NCCL takes memory when a rank first runs a kind of operation in a
// communicator, for short ones (below a mebibyte) and for long ones. `take` is
// called then, and returns whether it found memory; null, the initial value,
// always finds it. Not thread-safe.
void OnNcclMemory(std::function<bool()> take);

// The calling rank takes part in nothing more, as if its process had ended.
// With `is_noticed` NCCL tells the other ranks, as it does when a connection
// breaks.
void EndNcclRank(void* communicator, bool is_noticed);

}  // namespace dapd
