// NCCL as libdapd_cuda.so offers it: plain C, so that nothing else of the
// program needs CUDA's or NCCL's headers. Found by name (CudaSymbol).
#pragma once

#include <cstdint>

namespace dapd {

inline constexpr int kNcclIdBytes = 128;
inline constexpr int kNcclErrorBytes = 256;

// Each returns 0, or another number with the reason in `error`,
// [kNcclErrorBytes]. DapdNcclSum and DapdNcclAllGather run on the current CUDA
// stream and wait for it. After a failure or `timeout_seconds` they abort the
// communicator: a rank that is gone never hangs the others.
extern "C" {
// Makes the identifier that all ranks of one communicator need.
int DapdNcclUniqueId(char* id, char* error);
// Joins a communicator on the current CUDA device; waits for all ranks, but
// fails after `timeout_seconds`. Then a thread still waits: the process should
// end.
int DapdNcclInit(const char* id,
                 int rank,
                 int size,
                 double timeout_seconds,
                 void** communicator,
                 char* error);
// Sums `count` floats in device memory over all ranks, in place.
int DapdNcclSum(void* communicator,
                float* values,
                int64_t count,
                double timeout_seconds,
                char* error);
// The `bytes` of each rank's `part` one after another in `all`, by rank.
int DapdNcclAllGather(void* communicator,
                      const void* part,
                      void* all,
                      int64_t bytes,
                      double timeout_seconds,
                      char* error);
void DapdNcclDestroy(void* communicator);
}

}  // namespace dapd
