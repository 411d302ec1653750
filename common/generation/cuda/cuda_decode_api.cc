#include "common/generation/cuda/cuda_decode_api.h"

#include "absl/strings/match.h"

#include "common/gpus/cuda_backend.h"
#include "common/tensor/aten.h"

namespace dapd {

std::optional<CudaDecodeApi> FindCudaDecodeApi() {
  CudaDecodeApi api;
  bool complete = true;
  const auto find = [&]<typename Function>(Function*& function,
                                           const char* name) {
    complete = FindCudaFunction(name, &function) && complete;
  };
  find(api.free_bytes, "DapdCudaFreeBytes");
  find(api.merge_workspace, "DapdCudaMergeWorkspace");
  find(api.merge_adapter, "DapdCudaMergeAdapter");
  find(api.workspace, "DapdCudaDecoderWorkspace");
  find(api.create, "DapdCudaDecoderCreate");
  find(api.destroy, "DapdCudaDecoderDestroy");
  find(api.drop_graphs, "DapdCudaDecoderDropGraphs");
  find(api.start, "DapdCudaDecoderStart");
  find(api.extend, "DapdCudaDecoderExtend");
  find(api.stop, "DapdCudaDecoderStop");
  find(api.pause, "DapdCudaDecoderPause");
  find(api.resume, "DapdCudaDecoderContinue");
  find(api.copy_pages, "DapdCudaDecoderCopyPages");
  find(api.take_host_memory, "DapdCudaTakeHostMemory");
  find(api.free_host_memory, "DapdCudaFreeHostMemory");
  find(api.launch, "DapdCudaDecoderLaunch");
  find(api.collect, "DapdCudaDecoderCollect");
  find(api.launched, "DapdCudaDecoderLaunched");
  find(api.running, "DapdCudaDecoderRunning");
  find(api.launch_all_gather, "DapdNcclLaunchAllGather");
  find(api.launch_exchange, "DapdNcclLaunchExchange");
  return complete ? std::optional(api) : std::nullopt;
}

bool IsCudaMemoryWanted(absl::string_view error) {
  // The second status is cuBLASLt's.
  return absl::StrContains(error, "out of memory") ||
         absl::StrContains(error, "CUBLAS_STATUS_ALLOC_FAILED");
}

void CheckCuda(int code, const char* error) {
  if (code == 0) return;
  TORCH_CHECK_WITH(OutOfMemoryError, !IsCudaMemoryWanted(error), error);
  TORCH_CHECK(false, error);
}

}  // namespace dapd
