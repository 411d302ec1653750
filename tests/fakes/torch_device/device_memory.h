// Defines the memory of the simulated device, and host memory that is pinned
// for it. Both are host memory, and are counted. They fail as a GPU's memory
// does.
#pragma once

#include <c10/core/Allocator.h>

#include "common/tensor/aten.h"
#include "tests/fakes/torch_device/torch_device.h"

namespace dapd {

inline at::Device TheDevice() { return {at::kCUDA, 0}; }

// Returns the counts of the whole simulated device.
DeviceWork& Work();

c10::Allocator& DeviceMemory();
c10::Allocator& PinnedMemory();
// Returns whether `data` is in memory of PinnedMemory().
bool IsPinned(const void* data);

}  // namespace dapd
