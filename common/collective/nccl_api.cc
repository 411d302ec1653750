#include "common/collective/nccl_api.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"

namespace dapd {
namespace {

constexpr std::chrono::microseconds kPoll(50);

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

// Runs `start` on the current stream and waits until it is done.
int Run(const char* what,
        void* communicator,
        double timeout_seconds,
        char* error,
        absl::FunctionRef<ncclResult_t(ncclComm_t, cudaStream_t)> start) {
  auto* comm = static_cast<ncclComm_t>(communicator);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  const ncclResult_t started = start(comm, stream);
  if (started != ncclSuccess) {
    return Abort(comm, what, ncclGetErrorString(started), error);
  }
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration<double>(timeout_seconds);
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return 0;
    if (state != cudaErrorNotReady) {
      return Abort(comm, what, cudaGetErrorString(state), error);
    }
    ncclResult_t asynchronous = ncclSuccess;
    ncclCommGetAsyncError(comm, &asynchronous);
    if (asynchronous != ncclSuccess) {
      return Abort(comm, what, ncclGetErrorString(asynchronous), error);
    }
    if (std::chrono::steady_clock::now() >= deadline) {
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
  int device = 0;
  const cudaError_t found = cudaGetDevice(&device);
  if (found != cudaSuccess) {
    return Fail("cudaGetDevice", cudaGetErrorString(found), error);
  }
  // NCCL has no time-out of its own for ranks that never come, or cannot be
  // reached through a firewall.
  struct Made {
    ncclComm_t communicator = nullptr;
    ncclResult_t result = ncclSuccess;
  };
  std::packaged_task<Made()> join([=] {
    Made made;
    if (cudaSetDevice(device) != cudaSuccess) {
      made.result = ncclUnhandledCudaError;
      return made;
    }
    made.result = ncclCommInitRank(&made.communicator, size, shared, rank);
    return made;
  });
  std::future<Made> joined = join.get_future();
  std::thread(std::move(join)).detach();
  if (joined.wait_for(std::chrono::duration<double>(timeout_seconds)) !=
      std::future_status::ready) {
    return Fail("ncclCommInitRank",
                "not all ranks came in time; can their machines reach each "
                "other on every port?",
                error);
  }
  const Made made = joined.get();
  if (made.result != ncclSuccess) {
    return Fail("ncclCommInitRank", ncclGetErrorString(made.result), error);
  }
  *communicator = made.communicator;
  return 0;
}

extern "C" int DapdNcclSum(void* communicator,
                           float* values,
                           int64_t count,
                           double timeout_seconds,
                           char* error) {
  return Run("ncclAllReduce",
             communicator,
             timeout_seconds,
             error,
             [&](ncclComm_t comm, cudaStream_t stream) {
               return ncclAllReduce(values,
                                    values,
                                    static_cast<size_t>(count),
                                    ncclFloat32,
                                    ncclSum,
                                    comm,
                                    stream);
             });
}

extern "C" int DapdNcclAllGather(void* communicator,
                                 const void* part,
                                 void* all,
                                 int64_t bytes,
                                 double timeout_seconds,
                                 char* error) {
  return Run(
      "ncclAllGather",
      communicator,
      timeout_seconds,
      error,
      [&](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllGather(
            part, all, static_cast<size_t>(bytes), ncclUint8, comm, stream);
      });
}

extern "C" void DapdNcclDestroy(void* communicator) {
  ncclCommDestroy(static_cast<ncclComm_t>(communicator));
}

}  // namespace dapd
