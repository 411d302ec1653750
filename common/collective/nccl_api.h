// The functions of NCCL that libdapd_cuda.so offers, in plain C, so that the
// rest of the program needs no headers of CUDA or NCCL. They are found by name
// (CudaSymbol).
#pragma once

#include <cstdint>

namespace dapd {

inline constexpr int kNcclIdBytes = 128;
inline constexpr int kNcclErrorBytes = 512;

// One of several gathers that are launched together.
struct NcclGather {
  const void* part = nullptr;  // from this rank, in device memory
  void* all = nullptr;         // the parts of all ranks, one after another
  int64_t bytes = 0;           // of a part
};

// Bytes of rank 0 that every rank gets, one of several that are launched
// together.
struct NcclShared {
  void* data = nullptr;  // in device memory; rank 0's stays as it is
  int64_t bytes = 0;
};

// A process's place among the processes that joined a communicator.
struct NcclRanks {
  void* communicator = nullptr;  // from DapdNcclInit; null: no other ranks
  int rank = 0;
  int size = 1;
  double timeout_seconds = 0.0;  // for one operation
  // Called several times per second while this rank waits for the others.
  // Returns whether another rank is known to be gone, which NCCL itself may not
  // notice. May be null.
  bool (*has_lost_rank)(const void* knows) = nullptr;
  const void* knows = nullptr;
};

// Each function returns 0, or another number with the reason in `error`
// [kNcclErrorBytes]. DapdNcclSum, DapdNcclAllGather and DapdNcclBroadcast run
// on `stream`, a cudaStream_t, and wait for it once. They abort the
// communicator after a failure, after NcclRanks' timeout_seconds, and when a
// rank is lost, so that a rank that is gone never hangs the others.
//
// DapdNcclLaunchAllGather and DapdNcclLaunchExchange return as soon as their
// single launch is on `stream`, or in the graph that is captured there. They
// never wait for the device and abort nothing: the caller waits with
// DapdNcclWaitFor and calls DapdNcclAbort after a failure.
extern "C" {
// Returns the version of the loaded NCCL, 22809 for 2.28.9, or 0 if it does not
// say.
int DapdNcclVersion();
// Makes the identifier that all ranks of one communicator need.
int DapdNcclUniqueId(char* id, char* error);
// Joins a communicator on the current CUDA device. It waits for all ranks, but
// fails after `timeout_seconds`. After a failure it aborts the communicator, so
// that the process can end.
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
// Runs `count` gathers, in the same order on every rank, as one launch.
int DapdNcclAllGather(const NcclRanks* ranks,
                      const NcclGather* gathers,
                      int64_t count,
                      void* stream,
                      char* error);
// Gives every rank rank 0's bytes, `count` times, in the same order on every
// rank, as one launch.
int DapdNcclBroadcast(const NcclRanks* ranks,
                      const NcclShared* shared,
                      int64_t count,
                      void* stream,
                      char* error);
// Launches these gathers without waiting. A gather whose `part` already lies at
// its place in `all` copies nothing.
int DapdNcclLaunchAllGather(const NcclRanks* ranks,
                            const NcclGather* gathers,
                            int64_t count,
                            void* stream,
                            char* error);
// Sends `bytes` to every rank from `parts`, where they lie one after another by
// rank; `received` gets what the ranks send to this rank, by rank.
int DapdNcclLaunchExchange(const NcclRanks* ranks,
                           const void* parts,
                           void* received,
                           int64_t bytes,
                           void* stream,
                           char* error);
// Waits until the device has reached `event`, a cudaEvent_t after such
// launches. Fails after timeout_seconds, or when a rank is known to be gone.
int DapdNcclWaitFor(const NcclRanks* ranks, void* event, char* error);
// Ends the operations that run on the device and frees the communicator. Every
// graph that contains an operation of it must have been destroyed before, since
// NCCL would wait for the graph for ever; an operation that is running is
// allowed.
void DapdNcclAbort(void* communicator);
// Leaves the communicator; does not wait more than a few seconds for the other
// ranks.
void DapdNcclDestroy(void* communicator);
}

}  // namespace dapd
