#include "services/cli/pass_limits_text.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "common/base/visible_gpus.h"
#include "common/model/spec/pass_memory.h"

namespace dapd {
namespace {

// What the published sizes' configurations are made for.
constexpr double kUsualGib = 80;

bool IsForGpu(const Config& config) {
  return config.model.device == "cuda" ||
         (config.model.device == "auto" && !VisibleGpus().empty());
}

}  // namespace

absl::StatusOr<std::string> PassLimitsText(const Config& config,
                                           const ModelConfig& model,
                                           double gpu_gib) {
  if (gpu_gib == 0 && !IsForGpu(config)) {
    ASSIGN_OR_RETURN(const TrainerLimits limits,
                     PlanTrainerLimits(config, model, /*gpu=*/std::nullopt));
    return Describe(limits, model);
  }
  const double gib = gpu_gib > 0 ? gpu_gib : kUsualGib;
  const DeviceMemory gpu =
      EmptyGpu(config, model, static_cast<int64_t>(gib * (1 << 30)));
  const std::string where =
      config.run.gpu_processes > 1
          ? absl::StrFormat("a GPU of %g GiB that %d processes share",
                            gib,
                            config.run.gpu_processes)
          : absl::StrFormat("a GPU of %g GiB", gib);
  const auto limits = PlanTrainerLimits(config, model, gpu);
  if (limits.ok()) {
    return absl::StrCat("on ", where, ": ", Describe(*limits, model));
  }
  if (gpu_gib > 0) return limits.status();
  return absl::StrCat("none on ",
                      where,
                      " (--gpu-gib): ",
                      std::string(limits.status().message()));
}

}  // namespace dapd
