// NCCL as libdapd_cuda.so offers it: plain C, so that nothing else of the
// program needs CUDA's or NCCL's headers. Found by name (CudaSymbol).
#pragma once

#include <cstdint>

namespace dapd {

inline constexpr int kNcclIdBytes = 128;
inline constexpr int kNcclErrorBytes = 256;

// One of several gathers that are launched together.
struct NcclGather {
  const void* part = nullptr;  // of this rank, in device memory
  void* all = nullptr;         // those of all ranks, one after another
  int64_t bytes = 0;           // of a part
};

// Each returns 0, or another number with the reason in `error`,
// [kNcclErrorBytes]. DapdNcclSum and DapdNcclAllGather run on `stream`, a
// cudaStream_t, and wait for it once. After a failure or `timeout_seconds` they
// abort the communicator: a rank that is gone never hangs the others.
extern "C" {
// Makes the identifier that all ranks of one communicator need.
int DapdNcclUniqueId(char* id, char* error);
// Joins a communicator on the current CUDA device; waits for all ranks, but
// fails after `timeout_seconds`. What was begun is aborted then, so that a
// process that ends does not hang.
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
                void* stream,
                double timeout_seconds,
                char* error);
// `count` gathers, in the same order on every rank, as one launch.
int DapdNcclAllGather(void* communicator,
                      const NcclGather* gathers,
                      int64_t count,
                      void* stream,
                      double timeout_seconds,
                      char* error);
void DapdNcclDestroy(void* communicator);
}

}  // namespace dapd
