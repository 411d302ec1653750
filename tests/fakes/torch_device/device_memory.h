// The memory of the simulated device, and the host's that is pinned for it:
// both the host's, counted. Its failures are a GPU's.
#pragma once

#include <c10/core/Allocator.h>

#include "common/tensor/aten.h"
#include "tests/fakes/torch_device/torch_device.h"

namespace dapd {

inline at::Device TheDevice() { return {at::kCUDA, 0}; }

// What all of the simulated device counts in.
DeviceWork& Work();

c10::Allocator& DeviceMemory();
c10::Allocator& PinnedMemory();
// Whether `data` lies in what PinnedMemory() gave.
bool IsPinned(const void* data);

}  // namespace dapd
