// NCCL as libdapd_cuda.so offers it: plain C, so that nothing else of the
// program needs CUDA's or NCCL's headers. Found by name (CudaSymbol).
#pragma once

#include <cstdint>

namespace dapd {

inline constexpr int kNcclIdBytes = 128;

// Each returns 0, or another number with the reason in `error` (256 bytes).
extern "C" {
// Makes the identifier that all ranks of one communicator need.
int DapdNcclUniqueId(char* id, char* error);
// Joins a communicator on the current CUDA device; blocks for all ranks.
int DapdNcclInit(
    const char* id, int rank, int size, void** communicator, char* error);
// Sums `count` floats in device memory over all ranks, in place, and waits.
// After a failure or `timeout_seconds` the communicator is aborted: a rank that
// is gone never hangs the others.
int DapdNcclSum(void* communicator,
                float* values,
                int64_t count,
                double timeout_seconds,
                char* error);
void DapdNcclDestroy(void* communicator);
}

}  // namespace dapd
