// A CUDA device for LibTorch, simulated by the host: linked into a test in the
// place of libtorch_cuda.so it registers LibTorch's CUDA backend, so that code
// for a GPU runs as it is on a machine without one. "Device memory" is the
// host's, every operation runs at once as its CPU twin, and all that a GPU
// would be asked to do is counted: the count is what a test is after.
//
// What it does not simulate: time, streams (all work is done when a call
// returns), and a GPU's rounding: bfloat16 products round as the CPU's do.
//
// Attention is computed from the definition in float32, after a check of what
// LibTorch's CUDA kernels ask of their arguments.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/tensor/aten.h"

namespace dapd {

struct DeviceWork {
  // Operations that launch at least one kernel, copies inside the device among
  // them, by LibTorch's name ("aten::mm").
  std::map<std::string, int64_t> launches;
  int64_t to_device = 0;  // copies from the host
  int64_t to_host = 0;
  // Copies from or to memory of the host that is not pinned: the driver stages
  // them.
  int64_t pageable_copies = 0;
  // Times that the host waits for what was launched: copies that are not
  // non_blocking, numbers read, events and streams waited for.
  int64_t waits = 0;
  int64_t allocations = 0;         // from LibTorch's allocator of the device
  int64_t largest_allocation = 0;  // bytes
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;

  int64_t num_launches() const;
  int64_t Launches(const std::string& name) const;
};

// Since the last reset; live_bytes since the start. Not thread-safe.
const DeviceWork& WorkOfDevice();
// peak_bytes becomes live_bytes.
void ResetWorkOfDevice();

// Allocations beyond this many live bytes fail as a GPU's do; 0: none do.
void LimitDeviceMemory(int64_t bytes);

}  // namespace dapd
