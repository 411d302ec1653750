#include "common/model/weights/device_memory.h"

#include "common/gpus/cuda_backend.h"
#include "common/gpus/cuda_device.h"

namespace dapd {

std::optional<DeviceMemory> MemoryOf(at::Device device, int64_t processes) {
  if (!device.is_cuda()) return std::nullopt;
  const auto measure =
      reinterpret_cast<decltype(&DapdCudaMemory)>(CudaSymbol("DapdCudaMemory"));
  TORCH_CHECK(measure != nullptr,
              "[device_memory] libdapd_cuda.so has no DapdCudaMemory; build it "
              "and the program together");
  DeviceMemory memory;
  measure(&memory.total, &memory.free, &memory.own);
  return ShareOf(memory, processes);
}

}  // namespace dapd
