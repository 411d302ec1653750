#include "services/cli/pass_limits_text.h"

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/model/spec/pass_memory.h"
#include "services/cli/planned_gpu.h"

namespace dapd {

absl::StatusOr<std::string> PassLimitsText(const Config& config,
                                           const ModelConfig& model,
                                           double gpu_gib,
                                           const GpuReport& here,
                                           const FurtherTeachers& teachers) {
  if (gpu_gib == 0 && !PlansForGpu(config)) {
    ASSIGN_OR_RETURN(const TrainerLimits limits,
                     PlanTrainerLimits(config, model, /*gpu=*/std::nullopt));
    return Describe(limits, model);
  }
  // No other rank shares its GPU with more processes than rank 0.
  const PlannedGpu gpu = PlanGpu(config, gpu_gib, here, "trainer");
  const auto limits = PlanTrainerLimits(
      gpu.config,
      model,
      gpu.BesideOthers(EmptyGpu(gpu.config, model, gpu.bytes(), teachers)),
      teachers);
  if (limits.ok()) {
    return absl::StrCat("on ", gpu.name, ": ", Describe(*limits, model));
  }
  if (gpu_gib > 0) return limits.status();
  return absl::StrCat("none on ",
                      gpu.name,
                      gpu.is_here ? ": " : " (--gpu-gib): ",
                      std::string(limits.status().message()));
}

}  // namespace dapd
