// Simulates a CUDA device for LibTorch on the host. Linked into a test in place
// of libtorch_cuda.so, it registers LibTorch's CUDA backend, so that unchanged
// code for a GPU runs on a machine without a GPU. "Device memory" is host
// memory, every operation runs at once as the CPU's operation, and everything
// that a GPU would be asked to do is counted for the tests.
//
// It does not simulate time, streams (all work is done when a call returns), or
// a GPU's rounding: bfloat16 products round as the CPU's do.
//
// Attention is computed from the definition in float32, after a check of the
// conditions that LibTorch's CUDA kernels have for their arguments.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/tensor/aten.h"

namespace dapd {

struct DeviceWork {
  // Operations that launch at least one kernel, including copies inside the
  // device, by LibTorch's name ("aten::mm").
  std::map<std::string, int64_t> launches;
  int64_t to_device = 0;  // copies from the host
  int64_t to_host = 0;
  // Copies from or to host memory that is not pinned; the driver stages these.
  int64_t pageable_copies = 0;
  // Number of times that the host waits for launched work: copies that are not
  // non_blocking, numbers that are read, waits for events and streams.
  int64_t waits = 0;
  int64_t allocations = 0;         // by LibTorch's device allocator
  int64_t largest_allocation = 0;  // bytes
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;

  int64_t num_launches() const;
  int64_t Launches(const std::string& name) const;
};

// Returns the counts since the last reset; live_bytes counts since the start.
// Not thread-safe.
const DeviceWork& WorkOfDevice();
// Sets the counts to 0, and peak_bytes to live_bytes.
void ResetWorkOfDevice();

// Allocations beyond this many live bytes fail as on a GPU; 0 means no limit.
void LimitDeviceMemory(int64_t bytes);

}  // namespace dapd
