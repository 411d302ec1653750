// Where a worker computes.
#pragma once

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

// What the configuration asks for, made ready (OpenDevice, SetComputeThreads),
// for the process `name` ("teacher"), which needs what `role` of the plan says.
// Waits for memory of the GPU that another process holds (AwaitGpuMemory); a
// worker's signal ends the process then (worker_program.h). A CONFIG error as
// of DeviceOf; otherwise errors as of CheckOwnGpu.
absl::StatusOr<WorkerPlacement> OpenWorkerPlacement(
    const Config& config,
    const std::string& name,
    RoleMemory MemoryPlan::*role);

}  // namespace dapd
