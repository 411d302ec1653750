// Simulates a CUDA device on the host: the parts of the CUDA runtime that
// CudaDecoder uses. It is linked in place of the runtime, with the kernels of
// decode_kernels_on_host.cc, and runs the decoder's own host code on a machine
// without a GPU. Graphs are lists of calls, and streams are in order because
// every call runs at once.

#include "tests/fakes/cuda_on_host.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "common/generation/cuda/cuda_decode_api.h"

namespace dapd {
namespace {

thread_local CudaHostWork work;

using Calls = std::vector<std::function<void()>>;

thread_local Calls* capturing = nullptr;  // null if calls run at once
thread_local bool is_stuck = false;

void RunUnlessStuck(const std::function<void()>& call) {
  if (!is_stuck) call();
}

// Waits on the host without a time limit.
cudaError_t WaitWithoutEnd() {
  ++work.waits;
  if (is_stuck) {
    std::fprintf(stderr, "[cuda_on_host] the host waits for ever\n");
    std::abort();
  }
  return cudaSuccess;
}

}  // namespace

extern "C" int64_t DapdCudaFreeBytes() { return int64_t{1} << 30; }

CudaHostWork& WorkOfCudaHost() { return work; }

void LaunchOnCudaHost(std::function<void()> call) {
  if (capturing == nullptr) {
    ++work.launches;
    RunUnlessStuck(call);
  } else {
    capturing->push_back(std::move(call));
  }
}

bool& CudaHostIsStuck() { return is_stuck; }

bool CudaHostIsCapturing() { return capturing != nullptr; }

int64_t& GraphsOfCudaHost() {
  thread_local int64_t graphs = 0;
  return graphs;
}

int64_t& LaunchesBeforeNoMemory() {
  thread_local int64_t launches = -1;
  return launches;
}

int64_t& GraphsWithoutMemory() {
  thread_local int64_t graphs = 0;
  return graphs;
}

int64_t& GraphUploadsWithoutMemory() {
  thread_local int64_t uploads = 0;
  return uploads;
}

int64_t& PagesOfHostMemory() {
  thread_local int64_t pages = -1;
  return pages;
}

int64_t& EmbeddingsWithoutMemory() {
  thread_local int64_t embeddings = 0;
  return embeddings;
}

int64_t& StreamsWithoutMemory() {
  thread_local int64_t streams = 0;
  return streams;
}

}  // namespace dapd

using dapd::Calls;
using dapd::capturing;
using dapd::WorkOfCudaHost;

namespace {
thread_local cudaError_t last_error = cudaSuccess;
}  // namespace

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  if (dapd::StreamsWithoutMemory() > 0) {
    --dapd::StreamsWithoutMemory();
    return last_error = cudaErrorMemoryAllocation;
  }
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return dapd::WaitWithoutEnd();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  capturing = new Calls;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  ++WorkOfCudaHost().captures;
  WorkOfCudaHost().graph_nodes = static_cast<int64_t>(capturing->size());
  *graph = reinterpret_cast<cudaGraph_t>(capturing);
  capturing = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable,
                                 cudaGraph_t graph,
                                 unsigned long long) {
  if (dapd::GraphsWithoutMemory() > 0) {
    --dapd::GraphsWithoutMemory();
    return last_error = cudaErrorMemoryAllocation;
  }
  ++dapd::GraphsOfCudaHost();
  *executable = reinterpret_cast<cudaGraphExec_t>(
      new Calls(*reinterpret_cast<Calls*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  if (dapd::GraphUploadsWithoutMemory() > 0) {
    --dapd::GraphUploadsWithoutMemory();
    return last_error = cudaErrorMemoryAllocation;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Calls*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  --dapd::GraphsOfCudaHost();
  delete reinterpret_cast<Calls*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  int64_t& left = dapd::LaunchesBeforeNoMemory();
  if (left >= 0 && left-- == 0) return last_error = cudaErrorMemoryAllocation;
  ++WorkOfCudaHost().graph_launches;
  for (const auto& call : *reinterpret_cast<Calls*>(graph)) {
    dapd::RunUnlessStuck(call);
  }
  return cudaSuccess;
}

// An event stores whether it was recorded behind work that is stuck.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = reinterpret_cast<cudaEvent_t>(new bool(false));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<bool*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *reinterpret_cast<bool*>(event) = dapd::CudaHostIsStuck();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (*reinterpret_cast<bool*>(event)) return dapd::WaitWithoutEnd();
  ++WorkOfCudaHost().waits;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ++WorkOfCudaHost().waits;
  const bool is_behind = *reinterpret_cast<bool*>(event);
  return is_behind && dapd::CudaHostIsStuck() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) {
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  ++WorkOfCudaHost().waits;
  return dapd::CudaHostIsStuck() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  int64_t& left = dapd::PagesOfHostMemory();
  if (left == 0) return last_error = cudaErrorMemoryAllocation;
  if (left > 0) --left;
  *memory = new char[bytes];
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  // Unlike cudaFree, it accepts only memory from cudaMallocHost.
  if (memory == nullptr) return last_error = cudaErrorInvalidValue;
  delete[] static_cast<char*>(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  ++WorkOfCudaHost().copies;
  if (!dapd::CudaHostIsStuck()) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "a CUDA error";
}
