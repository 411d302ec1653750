#include "common/model/weights/device_memory.h"

#include "common/model/weights/placement.h"

namespace dapd {

std::optional<DeviceMemory> MemoryOf(at::Device device, int64_t processes) {
  if (!device.is_cuda()) return std::nullopt;
  using Measure = void (*)(int64_t * total, int64_t * free, int64_t * own);
  const auto measure = reinterpret_cast<Measure>(CudaSymbol("DapdCudaMemory"));
  TORCH_CHECK(measure != nullptr,
              "[device_memory] libdapd_cuda.so has no DapdCudaMemory; build it "
              "and the program together");
  DeviceMemory memory;
  measure(&memory.total, &memory.free, &memory.own);
  return ShareOf(memory, processes);
}

}  // namespace dapd
