#include "common/collective/nccl_api.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "absl/functional/function_ref.h"

namespace dapd {
namespace {

constexpr std::chrono::microseconds kPoll(50);
// For the other ranks to leave a communicator, too.
constexpr double kLeaveSeconds = 5;

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
  while (result == ncclInProgress && !IsPast(deadline)) {
    std::this_thread::sleep_for(kPoll);
    if (ncclCommGetAsyncError(communicator, &result) != ncclSuccess) {
      return ncclInternalError;
    }
  }
  return result;
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
    return Abort(comm, what, "a rank did not come in time", error);
  }
  if (started != ncclSuccess) {
    return Abort(comm, what, ncclGetErrorString(started), error);
  }
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return 0;
    if (state != cudaErrorNotReady) {
      return Abort(comm, what, cudaGetErrorString(state), error);
    }
    ncclResult_t asynchronous = ncclSuccess;
    ncclCommGetAsyncError(comm, &asynchronous);
    if (asynchronous != ncclSuccess && asynchronous != ncclInProgress) {
      return Abort(comm, what, ncclGetErrorString(asynchronous), error);
    }
    if (IsPast(deadline)) {
      return Abort(comm, what, "a rank did not come in time", error);
    }
    std::this_thread::sleep_for(kPoll);
  }
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
                        ? "not all ranks came in time; can their machines "
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
               ncclResult_t result = ncclGroupStart();
               if (result != ncclSuccess) return result;
               for (int64_t i = 0; i < count; ++i) {
                 const ncclResult_t added =
                     ncclAllGather(gathers[i].part,
                                   gathers[i].all,
                                   static_cast<size_t>(gathers[i].bytes),
                                   ncclUint8,
                                   comm,
                                   on);
                 const bool is_under_way =
                     added == ncclSuccess || added == ncclInProgress;
                 if (!is_under_way && result == ncclSuccess) result = added;
               }
               const ncclResult_t launched = ncclGroupEnd();
               return result == ncclSuccess ? launched : result;
             });
}

extern "C" void DapdNcclDestroy(void* communicator) {
  auto* comm = static_cast<ncclComm_t>(communicator);
  ncclCommFinalize(comm);
  // What was given to a communicator that does not block may still run.
  Settle(comm, ncclInProgress, After(kLeaveSeconds));
  ncclCommDestroy(comm);
}

}  // namespace dapd
