// Simulates NCCL, and the parts of the CUDA runtime around it, on the host:
// ranks that come late or never, a stream that never finishes, and counts of
// what was launched.
#pragma once

#include <cstdint>

namespace dapd {

struct SimulatedNccl {
  // Looks at a communicator, or at the stream, until it is ready; negative if
  // it never is.
  int64_t looks_to_join = 0;
  int64_t looks_to_finish = 0;
  bool breaks = false;  // an error occurs while an operation runs

  int64_t gathers = 0;     // inside groups
  int64_t broadcasts = 0;  // inside groups
  int64_t launches = 0;    // groups and sums
  int64_t aborts = 0;
  int64_t destroys = 0;
  bool blocks = true;  // configuration of the communicator
};

// Returns the simulation of the running test.
SimulatedNccl& TheSimulatedNccl();

}  // namespace dapd
