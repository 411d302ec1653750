// NCCL as libdapd_cuda.so offers it: plain C, so that nothing else of the
// program needs CUDA's or NCCL's headers. Found by name (CudaSymbol).
#pragma once

#include <cstdint>

namespace dapd {

inline constexpr int kNcclIdBytes = 128;
inline constexpr int kNcclErrorBytes = 512;

// One of several gathers that are launched together.
struct NcclGather {
  const void* part = nullptr;  // of this rank, in device memory
  void* all = nullptr;         // those of all ranks, one after another
  int64_t bytes = 0;           // of a part
};

// A process's place among those that joined a communicator.
struct NcclRanks {
  void* communicator = nullptr;  // DapdNcclInit; null: there are no others
  int rank = 0;
  int size = 1;
  double timeout_seconds = 0.0;  // that an operation may take
  // Asked some times per second while the others are waited for: whether one of
  // them is known to be gone, of which NCCL itself may know nothing. Null:
  // nobody knows.
  bool (*has_lost_rank)(const void* knows) = nullptr;
  const void* knows = nullptr;
};

// Each returns 0, or another number with the reason in `error`,
// [kNcclErrorBytes]. DapdNcclSum and DapdNcclAllGather run on `stream`, a
// cudaStream_t, and wait for it once. After a failure, NcclRanks'
// timeout_seconds or a lost rank they abort the communicator: a rank that is
// gone never hangs the others.
//
// DapdNcclLaunchAllGather and DapdNcclLaunchExchange return as soon as their
// one launch is on `stream`, or in the graph that is captured there; they never
// wait for the device and abort nothing. Whoever launches them waits by
// DapdNcclWaitFor, and after a failure calls DapdNcclAbort.
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
int DapdNcclSum(const NcclRanks* ranks,
                float* values,
                int64_t count,
                void* stream,
                char* error);
// `count` gathers, in the same order on every rank, as one launch.
int DapdNcclAllGather(const NcclRanks* ranks,
                      const NcclGather* gathers,
                      int64_t count,
                      void* stream,
                      char* error);
// The same gathers. One whose `part` is its place in `all` copies nothing.
int DapdNcclLaunchAllGather(const NcclRanks* ranks,
                            const NcclGather* gathers,
                            int64_t count,
                            void* stream,
                            char* error);
// Each rank has `bytes` for every rank, one after another in `parts`; in
// `received` there are then those that the ranks have for this one, by rank.
int DapdNcclLaunchExchange(const NcclRanks* ranks,
                           const void* parts,
                           void* received,
                           int64_t bytes,
                           void* stream,
                           char* error);
// Waits until `event`, a cudaEvent_t behind such launches, has been reached.
// Fails after timeout_seconds, or when a rank is known to be gone.
int DapdNcclWaitFor(const NcclRanks* ranks, void* event, char* error);
// Ends what runs on the device; the communicator is no more. No graph may have
// an operation of it in it that is not destroyed: NCCL would wait for that
// without an end. One that is under way may be.
void DapdNcclAbort(void* communicator);
// Leaves it, after a few seconds also without the other ranks.
void DapdNcclDestroy(void* communicator);
}

}  // namespace dapd
