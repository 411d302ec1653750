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
// A launch reaches its stream after some microseconds, and a prefill has
// hundreds of launches; so the first looks come without a pause.
constexpr int kQuickLooks = 100;
// The other ranks may take this long to leave a communicator, too.
constexpr double kLeaveSeconds = 5;
constexpr char kLate[] = "a rank did not join in time";
constexpr char kLost[] = "a rank is lost";

int Fail(const char* what, const char* why, char* error) {
  std::snprintf(error, kNcclErrorBytes, "%s: %s", what, why);
  return 1;
}

// Aborts the communicator, which no rank can use afterwards.
int Abort(ncclComm_t communicator,
          const char* what,
          const char* why,
          char* error) {
  ncclCommAbort(communicator);
  return Fail(what, why, error);
}

// Decides how long to wait for the other ranks.
class Patience {
 public:
  explicit Patience(double seconds, const NcclRanks& ranks = {})
      : ranks_(ranks),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(seconds))) {}
  explicit Patience(const NcclRanks& ranks)
      : Patience(ranks.timeout_seconds, ranks) {}

  // Returns null, or why the wait for the other ranks ends.
  const char* End() {
    if (end_ != nullptr) return end_;
    const Clock::time_point now = Clock::now();
    if (now >= deadline_) return end_ = kLate;
    if (ranks_.has_lost_rank == nullptr || now < next_question_) return nullptr;
    next_question_ = now + kQuestion;
    if (ranks_.has_lost_rank(ranks_.knows)) end_ = kLost;
    return end_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kQuestion{100};

  const NcclRanks ranks_;
  const Clock::time_point deadline_;
  Clock::time_point next_question_;
  const char* end_ = nullptr;
};

// Waits until the state of a nonblocking communicator is no longer
// ncclInProgress, and returns the state; returns ncclInProgress when `patience`
// ends.
ncclResult_t Settle(ncclComm_t communicator,
                    ncclResult_t result,
                    Patience& patience) {
  for (int looks = 0; result == ncclInProgress && patience.End() == nullptr;
       ++looks) {
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

// Returns the kind of the error, and the cause if NCCL knows it. `communicator`
// may be null.
std::string Describe(ncclComm_t communicator, ncclResult_t result) {
  std::string text = ncclGetErrorString(result);
  const char* const cause = ncclGetLastError(communicator);
  if (cause != nullptr && *cause != 0) text.append(": ").append(cause);
  return text;
}

// Calls `state` until it returns cudaSuccess. Returns an empty string, or why
// it did not succeed.
std::string WaitUntil(ncclComm_t comm,
                      Patience& patience,
                      absl::FunctionRef<cudaError_t()> state) {
  while (true) {
    const cudaError_t now = state();
    if (now == cudaSuccess) return "";
    if (now != cudaErrorNotReady) return cudaGetErrorString(now);
    ncclResult_t asynchronous = ncclSuccess;
    ncclCommGetAsyncError(comm, &asynchronous);
    if (asynchronous != ncclSuccess && asynchronous != ncclInProgress) {
      return Describe(comm, asynchronous);
    }
    if (patience.End() != nullptr) return patience.End();
    std::this_thread::sleep_for(kPoll);
  }
}

// Starts an operation. Returns an empty string, or why it did not start.
std::string Begin(ncclComm_t comm,
                  Patience& patience,
                  absl::FunctionRef<ncclResult_t(ncclComm_t)> start) {
  const ncclResult_t started = Settle(comm, start(comm), patience);
  if (started == ncclSuccess) return "";
  return started == ncclInProgress ? patience.End() : Describe(comm, started);
}

// Runs `start` on `stream` and waits until it is done.
int Run(const char* what,
        const NcclRanks& ranks,
        void* stream_handle,
        char* error,
        absl::FunctionRef<ncclResult_t(ncclComm_t, cudaStream_t)> start) {
  auto* comm = static_cast<ncclComm_t>(ranks.communicator);
  auto* stream = static_cast<cudaStream_t>(stream_handle);
  Patience patience(ranks);
  std::string problem =
      Begin(comm, patience, [&](ncclComm_t on) { return start(on, stream); });
  if (problem.empty()) {
    problem =
        WaitUntil(comm, patience, [stream] { return cudaStreamQuery(stream); });
  }
  return problem.empty() ? 0 : Abort(comm, what, problem.c_str(), error);
}

// Starts an operation without waiting for the device; does not abort the
// communicator after a failure.
int Launch(const char* what,
           const NcclRanks& ranks,
           char* error,
           absl::FunctionRef<ncclResult_t(ncclComm_t)> start) {
  Patience patience(ranks);
  const std::string problem =
      Begin(static_cast<ncclComm_t>(ranks.communicator), patience, start);
  return problem.empty() ? 0 : Fail(what, problem.c_str(), error);
}

// Launches what `add` adds for each of `count` operations as one group.
ncclResult_t StartGroup(int64_t count,
                        absl::FunctionRef<ncclResult_t(int64_t)> add) {
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  for (int64_t i = 0; i < count; ++i) {
    const ncclResult_t added = add(i);
    const bool is_under_way = added == ncclSuccess || added == ncclInProgress;
    if (!is_under_way && result == ncclSuccess) result = added;
  }
  const ncclResult_t launched = ncclGroupEnd();
  return result == ncclSuccess ? launched : result;
}

ncclResult_t StartGathers(const NcclGather* gathers,
                          int64_t count,
                          ncclComm_t comm,
                          cudaStream_t stream) {
  return StartGroup(count, [&](int64_t i) {
    return ncclAllGather(gathers[i].part,
                         gathers[i].all,
                         static_cast<size_t>(gathers[i].bytes),
                         ncclUint8,
                         comm,
                         stream);
  });
}

ncclResult_t StartBroadcasts(const NcclShared* shared,
                             int64_t count,
                             ncclComm_t comm,
                             cudaStream_t stream) {
  return StartGroup(count, [&](int64_t i) {
    return ncclBroadcast(shared[i].data,
                         shared[i].data,
                         static_cast<size_t>(shared[i].bytes),
                         ncclUint8,
                         /*root=*/0,
                         comm,
                         stream);
  });
}

}  // namespace

static_assert(sizeof(ncclUniqueId) == kNcclIdBytes);

extern "C" int DapdNcclVersion() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

extern "C" int DapdNcclUniqueId(char* id, char* error) {
  ncclUniqueId made;
  const ncclResult_t result = ncclGetUniqueId(&made);
  if (result != ncclSuccess) {
    return Fail("ncclGetUniqueId", Describe(nullptr, result).c_str(), error);
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
  // NCCL itself would wait for ever for ranks that never come, or that a
  // firewall hides. Calls on a nonblocking communicator return at once, so this
  // function can end the wait. docs/cuda.md says what that costs in graphs.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t joined = nullptr;
  Patience patience(timeout_seconds);
  ncclResult_t result =
      ncclCommInitRankConfig(&joined, size, shared, rank, &config);
  if (joined != nullptr) result = Settle(joined, result, patience);
  if (result == ncclSuccess) {
    *communicator = joined;
    return 0;
  }
  const std::string why =
      result == ncclInProgress
          ? "not all ranks joined in time; can their machines reach each other "
            "on every port?"
          : Describe(joined, result);
  if (joined == nullptr) return Fail("ncclCommInitRank", why.c_str(), error);
  return Abort(joined, "ncclCommInitRank", why.c_str(), error);
}

extern "C" int DapdNcclSum(const NcclRanks* ranks,
                           float* values,
                           int64_t count,
                           void* stream,
                           char* error) {
  return Run("ncclAllReduce",
             *ranks,
             stream,
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

extern "C" int DapdNcclAllGather(const NcclRanks* ranks,
                                 const NcclGather* gathers,
                                 int64_t count,
                                 void* stream,
                                 char* error) {
  return Run("ncclAllGather",
             *ranks,
             stream,
             error,
             [&](ncclComm_t comm, cudaStream_t on) {
               return StartGathers(gathers, count, comm, on);
             });
}

extern "C" int DapdNcclBroadcast(const NcclRanks* ranks,
                                 const NcclShared* shared,
                                 int64_t count,
                                 void* stream,
                                 char* error) {
  return Run("ncclBroadcast",
             *ranks,
             stream,
             error,
             [&](ncclComm_t comm, cudaStream_t on) {
               return StartBroadcasts(shared, count, comm, on);
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
  Patience patience(*ranks);
  const std::string problem = WaitUntil(
      static_cast<ncclComm_t>(ranks->communicator), patience, [event] {
        return cudaEventQuery(static_cast<cudaEvent_t>(event));
      });
  return problem.empty() ? 0 : Fail("waiting", problem.c_str(), error);
}

extern "C" void DapdNcclAbort(void* communicator) {
  ncclCommAbort(static_cast<ncclComm_t>(communicator));
}

extern "C" void DapdNcclDestroy(void* communicator) {
  auto* comm = static_cast<ncclComm_t>(communicator);
  ncclCommFinalize(comm);
  // Operations on a nonblocking communicator may still run, and run for ever if
  // a rank is gone; ncclCommDestroy would wait for them.
  Patience patience(kLeaveSeconds);
  if (Settle(comm, ncclInProgress, patience) == ncclSuccess) {
    ncclCommDestroy(comm);
  } else {
    ncclCommAbort(comm);
  }
}

}  // namespace dapd
