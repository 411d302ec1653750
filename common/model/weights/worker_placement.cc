#include "common/model/weights/worker_placement.h"

#include "common/base/status_macros.h"
#include "common/model/spec/gpu_shares.h"
#include "common/model/spec/model_config.h"
#include "common/model/weights/placement.h"

namespace dapd {

absl::StatusOr<WorkerPlacement> OpenWorkerPlacement(
    const Config& config,
    const std::string& name,
    RoleMemory MemoryPlan::*role) {
  SetComputeThreads(config.run.num_threads);
  ASSIGN_OR_RETURN(const at::Device device, OpenDevice(config.model));
  ASSIGN_OR_RETURN(const at::ScalarType dtype,
                   ParsePrecision(config.model.precision));
  if (device.is_cuda()) {
    ASSIGN_OR_RETURN(const ModelConfig model,
                     ReadModelConfig(config.model.path));
    RETURN_IF_ERROR(CheckOwnGpu(name, PlanMemory(config, model).*role));
  }
  return WorkerPlacement{device, dtype};
}

}  // namespace dapd
