#include "common/generation/cuda/cuda_library.h"

#include "absl/strings/match.h"

#include "common/model/weights/placement.h"
#include "common/tensor/aten.h"

namespace dapd {

std::optional<CudaLibrary> FindCudaLibrary() {
  CudaLibrary library;
  bool complete = true;
  const auto find = [&]<typename Function>(Function*& function,
                                           const char* name) {
    function = reinterpret_cast<Function*>(CudaSymbol(name));
    complete = complete && function != nullptr;
  };
  find(library.free_bytes, "DapdCudaFreeBytes");
  find(library.merge_workspace, "DapdCudaMergeWorkspace");
  find(library.merge_adapter, "DapdCudaMergeAdapter");
  find(library.workspace, "DapdCudaDecoderWorkspace");
  find(library.create, "DapdCudaDecoderCreate");
  find(library.destroy, "DapdCudaDecoderDestroy");
  find(library.start, "DapdCudaDecoderStart");
  find(library.extend, "DapdCudaDecoderExtend");
  find(library.stop, "DapdCudaDecoderStop");
  find(library.launch, "DapdCudaDecoderLaunch");
  find(library.collect, "DapdCudaDecoderCollect");
  find(library.launched, "DapdCudaDecoderLaunched");
  find(library.running, "DapdCudaDecoderRunning");
  find(library.launch_all_gather, "DapdNcclLaunchAllGather");
  find(library.launch_exchange, "DapdNcclLaunchExchange");
  return complete ? std::optional(library) : std::nullopt;
}

void CheckCuda(int code, const char* error) {
  if (code == 0) return;
  TORCH_CHECK_WITH(
      OutOfMemoryError, !absl::StrContains(error, "out of memory"), error);
  TORCH_CHECK(false, error);
}

}  // namespace dapd
