// The device and the threads on which a worker computes.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/memory_plan.h"
#include "common/tensor/aten.h"

namespace dapd {

struct WorkerPlacement {
  at::Device device;
  at::ScalarType dtype;
};

// Sets up the configured device and threads (OpenDevice, SetComputeThreads) for
// the process `name` ("teacher"), which needs the memory of `role` in the plan.
// Waits for memory of the GPU that another process holds (AwaitGpuMemory); a
// signal to the worker ends the process during the wait (worker_program.h).
// Returns the errors of DeviceOf and CheckOwnGpu.
absl::StatusOr<WorkerPlacement> OpenWorkerPlacement(
    const Config& config,
    const std::string& name,
    RoleMemory MemoryPlan::*role);

// Does the same for a process whose memory `plan` returns; it is only called
// for a GPU.
absl::StatusOr<WorkerPlacement> OpenWorkerPlacement(
    const Config& config,
    const std::string& name,
    const std::function<absl::StatusOr<RoleMemory>()>& plan);

}  // namespace dapd
