// NCCL between ranks that are threads of one process, each with a device of its
// own (cuda_on_host.h). An operation is a launch of that device: it meets those
// of the other ranks when it runs, checks that they are the same one, and moves
// or adds up the numbers. Ranks that differ, or one that does not come, end the
// process with a line; behind one that is known to have ended the others'
// devices are stuck until they abort.
#pragma once

#include <cstdint>

namespace dapd {

// What a rank's operations did that have run.
struct NcclRankWork {
  int64_t gathers = 0;  // groups of them, each of which is one launch
  int64_t exchanges = 0;
  int64_t sums = 0;
  int64_t bytes_received = 0;  // from the other ranks
};

// Of the calling thread.
NcclRankWork& WorkOfNcclRank();

// The calling rank takes part in nothing more, as one whose process has ended.
// `is_noticed`: NCCL tells the others, as it does where a connection breaks.
void EndNcclRank(void* communicator, bool is_noticed);

}  // namespace dapd
