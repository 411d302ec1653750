#include "tests/fakes/nccl_on_host.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>

namespace dapd {
namespace {

bool in_group = false;

// Looks once at something that becomes ready after `looks` looks.
bool IsReady(int64_t* looks) {
  if (*looks > 0) --*looks;
  return *looks == 0;
}

ncclResult_t Launch() {
  ++TheSimulatedNccl().launches;
  return ncclInProgress;
}

}  // namespace

SimulatedNccl& TheSimulatedNccl() {
  static SimulatedNccl simulated;
  return simulated;
}

extern "C" {

const char* cudaGetErrorString(cudaError_t) { return "a CUDA error"; }
cudaError_t cudaStreamQuery(cudaStream_t) {
  return IsReady(&TheSimulatedNccl().looks_to_finish) ? cudaSuccess
                                                      : cudaErrorNotReady;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaStreamQuery(nullptr); }

const char* ncclGetErrorString(ncclResult_t) { return "an NCCL error"; }
const char* ncclGetLastError(ncclComm_t) {
  return TheSimulatedNccl().breaks ? "its cause" : "";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof(*id));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t* config) {
  *comm = reinterpret_cast<ncclComm_t>(&TheSimulatedNccl());
  TheSimulatedNccl().blocks = config->blocking != 0;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  SimulatedNccl& simulated = TheSimulatedNccl();
  if (simulated.breaks && simulated.launches > 0) {
    *state = ncclRemoteError;
  } else {
    *state = IsReady(&simulated.looks_to_join) ? ncclSuccess : ncclInProgress;
  }
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  ++TheSimulatedNccl().aborts;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclInProgress; }
ncclResult_t ncclCommDestroy(ncclComm_t) {
  ++TheSimulatedNccl().destroys;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void*,
                           void*,
                           size_t,
                           ncclDataType_t,
                           ncclRedOp_t,
                           ncclComm_t,
                           cudaStream_t) {
  return Launch();
}
ncclResult_t ncclAllGather(const void* part,
                           void* all,
                           size_t bytes,
                           ncclDataType_t,
                           ncclComm_t,
                           cudaStream_t) {
  if (!in_group) return ncclInvalidUsage;
  ++TheSimulatedNccl().gathers;
  std::memcpy(all, part, bytes);
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(
    const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  if (!in_group) return ncclInvalidUsage;
  ++TheSimulatedNccl().broadcasts;
  return ncclSuccess;
}
ncclResult_t ncclAlltoAll(
    const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return Launch();
}
ncclResult_t ncclGroupStart() {
  in_group = true;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  in_group = false;
  return Launch();
}

}  // extern "C"
}  // namespace dapd
