// How much memory a device has left.
#pragma once

#include <cstdint>
#include <optional>

#include "common/model/spec/pass_memory.h"
#include "common/tensor/aten.h"

namespace dapd {

// Of the current CUDA device, as one of `processes` that share it evenly may
// see it; what LibTorch keeps for later is given back for that. None on the
// CPU.
std::optional<DeviceMemory> MemoryOf(at::Device device, int64_t processes);

}  // namespace dapd
