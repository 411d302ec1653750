// The functions of libdapd_cuda.so that decoding on a GPU uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "common/generation/cuda/cuda_decoder.h"
#include "common/gpus/cuda_device.h"
#include "common/kernels/cuda/adapter_merge.h"

namespace dapd {

struct CudaDecodeApi {
  decltype(&DapdCudaFreeBytes) free_bytes = nullptr;
  decltype(&DapdCudaMergeWorkspace) merge_workspace = nullptr;
  decltype(&DapdCudaMergeAdapter) merge_adapter = nullptr;
  decltype(&DapdCudaDecoderWorkspace) workspace = nullptr;
  decltype(&DapdCudaDecoderCreate) create = nullptr;
  decltype(&DapdCudaDecoderDestroy) destroy = nullptr;
  decltype(&DapdCudaDecoderDropGraphs) drop_graphs = nullptr;
  decltype(&DapdCudaDecoderStart) start = nullptr;
  decltype(&DapdCudaDecoderExtend) extend = nullptr;
  decltype(&DapdCudaDecoderStop) stop = nullptr;
  decltype(&DapdCudaDecoderPause) pause = nullptr;
  decltype(&DapdCudaDecoderContinue) resume = nullptr;
  decltype(&DapdCudaDecoderCopyPages) copy_pages = nullptr;
  decltype(&DapdCudaTakeHostMemory) take_host_memory = nullptr;
  decltype(&DapdCudaFreeHostMemory) free_host_memory = nullptr;
  decltype(&DapdCudaDecoderLaunch) launch = nullptr;
  decltype(&DapdCudaDecoderCollect) collect = nullptr;
  decltype(&DapdCudaDecoderLaunched) launched = nullptr;
  decltype(&DapdCudaDecoderRunning) running = nullptr;
  decltype(&DapdNcclLaunchAllGather) launch_all_gather = nullptr;
  decltype(&DapdNcclLaunchExchange) launch_exchange = nullptr;
};

// Returns nothing if this build has no CUDA library, or a library without its
// own kernels (an instrumented build).
std::optional<CudaDecodeApi> FindCudaDecodeApi();

// Returns whether a C function's reason is a want of memory.
bool IsCudaMemoryWanted(absl::string_view error);

// Throws c10::Error with a C function's reason unless its `code` is 0; for lack
// of memory it throws c10::OutOfMemoryError.
void CheckCuda(int code, const char* error);

}  // namespace dapd
