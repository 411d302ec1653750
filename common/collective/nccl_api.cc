#include "common/collective/nccl_api.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "absl/functional/function_ref.h"

namespace dapd {
namespace {

constexpr std::chrono::microseconds kPoll(50);
// A launch is on its stream after some microseconds, of which a prefill has
// hundreds.
constexpr int kQuickLooks = 100;
// For the other ranks to leave a communicator, too.
constexpr double kLeaveSeconds = 5;
constexpr char kLate[] = "a rank did not join in time";

int Fail(const char* what, const char* why, char* error) {
  std::snprintf(error, kNcclErrorBytes, "%s: %s", what, why);
  return 1;
}

// The communicator is not usable afterwards, on any rank.
int Abort(ncclComm_t communicator,
          const char* what,
          const char* why,
          char* error) {
  ncclCommAbort(communicator);
  return Fail(what, why, error);
}

using Deadline = std::chrono::steady_clock::time_point;

Deadline After(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(
             std::chrono::duration<double>(seconds));
}

bool IsPast(Deadline deadline) {
  return std::chrono::steady_clock::now() >= deadline;
}

// What a communicator that does not block is doing, once that is no longer
// ncclInProgress; or ncclInProgress at `deadline`.
ncclResult_t Settle(ncclComm_t communicator,
                    ncclResult_t result,
                    Deadline deadline) {
  for (int looks = 0; result == ncclInProgress && !IsPast(deadline); ++looks) {
    if (looks < kQuickLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPoll);
    }
    if (ncclCommGetAsyncError(communicator, &result) != ncclSuccess) {
      return ncclInternalError;
    }
  }
  return result;
}

// Asks `state` until it is cudaSuccess. Empty, or why that did not come.
std::string WaitUntil(ncclComm_t comm,
                      Deadline deadline,
                      absl::FunctionRef<cudaError_t()> state) {
  while (true) {
    const cudaError_t now = state();
    if (now == cudaSuccess) return "";
    if (now != cudaErrorNotReady) return cudaGetErrorString(now);
    ncclResult_t asynchronous = ncclSuccess;
    ncclCommGetAsyncError(comm, &asynchronous);
    if (asynchronous != ncclSuccess && asynchronous != ncclInProgress) {
      return ncclGetErrorString(asynchronous);
    }
    if (IsPast(deadline)) return kLate;
    std::this_thread::sleep_for(kPoll);
  }
}

// Runs `start` on `stream` and waits until it is done.
int Run(const char* what,
        void* communicator,
        void* stream_handle,
        double timeout_seconds,
        char* error,
        absl::FunctionRef<ncclResult_t(ncclComm_t, cudaStream_t)> start) {
  auto* comm = static_cast<ncclComm_t>(communicator);
  auto* stream = static_cast<cudaStream_t>(stream_handle);
  const Deadline deadline = After(timeout_seconds);
  const ncclResult_t started = Settle(comm, start(comm, stream), deadline);
  if (started == ncclInProgress) {
    return Abort(comm, what, kLate, error);
  }
  if (started != ncclSuccess) {
    return Abort(comm, what, ncclGetErrorString(started), error);
  }
  const std::string problem =
      WaitUntil(comm, deadline, [stream] { return cudaStreamQuery(stream); });
  return problem.empty() ? 0 : Abort(comm, what, problem.c_str(), error);
}

// The same without waiting for the device, and without an end by it.
int Launch(const char* what,
           const NcclRanks& ranks,
           char* error,
           absl::FunctionRef<ncclResult_t(ncclComm_t)> start) {
  auto* comm = static_cast<ncclComm_t>(ranks.communicator);
  const ncclResult_t started =
      Settle(comm, start(comm), After(ranks.timeout_seconds));
  if (started == ncclSuccess) return 0;
  return Fail(what,
              started == ncclInProgress ? kLate : ncclGetErrorString(started),
              error);
}

ncclResult_t StartGathers(const NcclGather* gathers,
                          int64_t count,
                          ncclComm_t comm,
                          cudaStream_t stream) {
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  for (int64_t i = 0; i < count; ++i) {
    const ncclResult_t added =
        ncclAllGather(gathers[i].part,
                      gathers[i].all,
                      static_cast<size_t>(gathers[i].bytes),
                      ncclUint8,
                      comm,
                      stream);
    const bool is_under_way = added == ncclSuccess || added == ncclInProgress;
    if (!is_under_way && result == ncclSuccess) result = added;
  }
  const ncclResult_t launched = ncclGroupEnd();
  return result == ncclSuccess ? launched : result;
}

}  // namespace

static_assert(sizeof(ncclUniqueId) == kNcclIdBytes);

extern "C" int DapdNcclUniqueId(char* id, char* error) {
  ncclUniqueId made;
  const ncclResult_t result = ncclGetUniqueId(&made);
  if (result != ncclSuccess) {
    return Fail("ncclGetUniqueId", ncclGetErrorString(result), error);
  }
  std::memcpy(id, &made, sizeof(made));
  return 0;
}

extern "C" int DapdNcclInit(const char* id,
                            int rank,
                            int size,
                            double timeout_seconds,
                            void** communicator,
                            char* error) {
  ncclUniqueId shared;
  std::memcpy(&shared, id, sizeof(shared));
  // NCCL has no time-out of its own for ranks that never come, or cannot be
  // reached through a firewall: a communicator that does not block has none to
  // wait for.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t joined = nullptr;
  const Deadline deadline = After(timeout_seconds);
  ncclResult_t result =
      ncclCommInitRankConfig(&joined, size, shared, rank, &config);
  if (joined != nullptr) result = Settle(joined, result, deadline);
  if (result == ncclSuccess) {
    *communicator = joined;
    return 0;
  }
  const char* why = result == ncclInProgress
                        ? "not all ranks joined in time; can their machines "
                          "reach each other on every port?"
                        : ncclGetErrorString(result);
  if (joined == nullptr) return Fail("ncclCommInitRank", why, error);
  return Abort(joined, "ncclCommInitRank", why, error);
}

extern "C" int DapdNcclSum(void* communicator,
                           float* values,
                           int64_t count,
                           void* stream,
                           double timeout_seconds,
                           char* error) {
  return Run("ncclAllReduce",
             communicator,
             stream,
             timeout_seconds,
             error,
             [&](ncclComm_t comm, cudaStream_t on) {
               return ncclAllReduce(values,
                                    values,
                                    static_cast<size_t>(count),
                                    ncclFloat32,
                                    ncclSum,
                                    comm,
                                    on);
             });
}

extern "C" int DapdNcclAllGather(void* communicator,
                                 const NcclGather* gathers,
                                 int64_t count,
                                 void* stream,
                                 double timeout_seconds,
                                 char* error) {
  return Run("ncclAllGather",
             communicator,
             stream,
             timeout_seconds,
             error,
             [&](ncclComm_t comm, cudaStream_t on) {
               return StartGathers(gathers, count, comm, on);
             });
}

extern "C" int DapdNcclLaunchAllGather(const NcclRanks* ranks,
                                       const NcclGather* gathers,
                                       int64_t count,
                                       void* stream,
                                       char* error) {
  return Launch("ncclAllGather", *ranks, error, [&](ncclComm_t comm) {
    return StartGathers(
        gathers, count, comm, static_cast<cudaStream_t>(stream));
  });
}

extern "C" int DapdNcclLaunchExchange(const NcclRanks* ranks,
                                      const void* parts,
                                      void* received,
                                      int64_t bytes,
                                      void* stream,
                                      char* error) {
  return Launch("ncclAlltoAll", *ranks, error, [&](ncclComm_t comm) {
    return ncclAlltoAll(parts,
                        received,
                        static_cast<size_t>(bytes),
                        ncclUint8,
                        comm,
                        static_cast<cudaStream_t>(stream));
  });
}

extern "C" int DapdNcclWaitFor(const NcclRanks* ranks,
                               void* event,
                               char* error) {
  const std::string problem = WaitUntil(
      static_cast<ncclComm_t>(ranks->communicator),
      After(ranks->timeout_seconds),
      [event] { return cudaEventQuery(static_cast<cudaEvent_t>(event)); });
  return problem.empty() ? 0 : Fail("waiting", problem.c_str(), error);
}

extern "C" void DapdNcclAbort(void* communicator) {
  ncclCommAbort(static_cast<ncclComm_t>(communicator));
}

extern "C" void DapdNcclDestroy(void* communicator) {
  auto* comm = static_cast<ncclComm_t>(communicator);
  ncclCommFinalize(comm);
  // What was given to a communicator that does not block may still run, and
  // with a rank that is gone it runs for ever: a destruction would wait for it.
  if (Settle(comm, ncclInProgress, After(kLeaveSeconds)) == ncclSuccess) {
    ncclCommDestroy(comm);
  } else {
    ncclCommAbort(comm);
  }
}

}  // namespace dapd
