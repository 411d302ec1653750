#include "common/model/weights/worker_placement.h"

#include "absl/time/clock.h"

#include "common/base/status_macros.h"
#include "common/model/spec/gpu_memory_wait.h"
#include "common/model/spec/gpu_shares.h"
#include "common/model/spec/model_config.h"
#include "common/model/weights/placement.h"

namespace dapd {

absl::StatusOr<WorkerPlacement> OpenWorkerPlacement(
    const Config& config,
    const std::string& name,
    const std::function<absl::StatusOr<RoleMemory>()>& plan) {
  SetComputeThreads(config.run.num_threads);
  ASSIGN_OR_RETURN(const at::Device device, OpenDevice(config.model));
  const at::ScalarType dtype = TypeOf(config.model.precision);
  if (device.is_cuda()) {
    ASSIGN_OR_RETURN(const RoleMemory needed, plan());
    // A signal ends a worker that does not serve yet.
    RETURN_IF_ERROR(AwaitGpuMemory([&] { return CheckOwnGpu(name, needed); },
                                   absl::Seconds(config.run.gpu_wait_seconds),
                                   [](absl::Duration pause) {
                                     absl::SleepFor(pause);
                                     return false;
                                   }));
  }
  return WorkerPlacement{device, dtype};
}

absl::StatusOr<WorkerPlacement> OpenWorkerPlacement(
    const Config& config,
    const std::string& name,
    RoleMemory MemoryPlan::*role) {
  return OpenWorkerPlacement(config, name, [&]() -> absl::StatusOr<RoleMemory> {
    ASSIGN_OR_RETURN(const ModelConfig model,
                     ReadModelConfig(config.model.path));
    return PlanMemory(config, model).*role;
  });
}

}  // namespace dapd
