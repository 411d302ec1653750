// The memory that a device has left.
#pragma once

#include <cstdint>
#include <optional>

#include "common/model/spec/pass_memory.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns the memory of the current CUDA device for one of `processes` that
// share it evenly, after giving back LibTorch's unused memory. Returns none on
// the CPU.
std::optional<DeviceMemory> MemoryOf(at::Device device, int64_t processes);

}  // namespace dapd
