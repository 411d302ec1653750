#include "common/generation/cuda/cuda_page_copies.h"

namespace dapd {

CudaPageCopies::~CudaPageCopies() {
  if (stream_ != nullptr) {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  for (const cudaEvent_t event : {before_, copied_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

CudaOutcome CudaPageCopies::Prepare() {
  CudaOutcome outcome;
  outcome.Cuda("cudaStreamCreate", cudaStreamCreate(&stream_));
  for (cudaEvent_t* event : {&before_, &copied_}) {
    outcome.Cuda("cudaEventCreate",
                 cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  return outcome;
}

CudaOutcome CudaPageCopies::Copy(std::span<void* const> to,
                                 std::span<void* const> from,
                                 size_t page_bytes,
                                 cudaStream_t decoder) {
  CudaOutcome outcome;
  outcome.Cuda("cudaEventRecord", cudaEventRecord(before_, decoder));
  outcome.Cuda("cudaStreamWaitEvent",
               cudaStreamWaitEvent(stream_, before_, /*flags=*/0));
  for (size_t i = 0; outcome.ok() && i < to.size(); ++i) {
    // CUDA knows by the addresses which one is the host's.
    outcome.Cuda("copy pages",
                 cudaMemcpyAsync(
                     to[i], from[i], page_bytes, cudaMemcpyDefault, stream_));
  }
  // Also after an error, since some of the copies may be under way.
  outcome.Cuda("cudaEventRecord", cudaEventRecord(copied_, stream_));
  outcome.Cuda("cudaStreamWaitEvent",
               cudaStreamWaitEvent(decoder, copied_, /*flags=*/0));
  return outcome;
}

extern "C" int DapdCudaTakeHostMemory(int64_t bytes,
                                      void** memory,
                                      char* error) {
  CudaOutcome outcome;
  outcome.Cuda("cudaMallocHost",
               cudaMallocHost(memory, static_cast<size_t>(bytes)));
  return outcome.Give(error);
}

extern "C" void DapdCudaFreeHostMemory(void* memory) { cudaFreeHost(memory); }

}  // namespace dapd
