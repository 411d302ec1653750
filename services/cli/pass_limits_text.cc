#include "services/cli/pass_limits_text.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "common/gpus/gpu.h"
#include "common/model/spec/gpu_shares.h"
#include "common/model/spec/pass_memory.h"

namespace dapd {
namespace {

// The GPU for which the published sizes are configured.
constexpr double kUsualGib = 80;

// Returns the processes that share rank 0's GPU, as `dapd run` counts them
// unless the configuration does. No other rank shares its GPU with more.
int64_t ProcessesOnAGpu(const Config& config, size_t num_gpus) {
  if (config.run.gpu_processes != 1) return config.run.gpu_processes;
  std::vector<std::string> gpus;
  for (size_t i = 0; i < num_gpus; ++i) gpus.push_back(absl::StrCat(i));
  const std::vector<LocalProcess> processes = DealGpus(config, gpus);
  return std::max<int64_t>(1, ProcessesOnGpusOf(processes.front(), processes));
}

}  // namespace

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
  Config shared = config;
  double gib = gpu_gib > 0 ? gpu_gib : kUsualGib;
  std::optional<int64_t> free_bytes;
  const bool is_here = gpu_gib == 0 && here.usable.ok() && !here.gpus.empty();
  if (is_here) {
    const Gpu& gpu = here.gpus.front();
    gib = static_cast<double>(gpu.total_bytes) / kGiB;
    free_bytes = gpu.free_bytes;
    shared.run.gpu_processes = ProcessesOnAGpu(config, here.gpus.size());
  }
  DeviceMemory gpu =
      EmptyGpu(shared, model, static_cast<int64_t>(gib * kGiB), teachers);
  if (free_bytes.has_value()) {
    gpu.free = std::clamp<int64_t>(*free_bytes - gpu.own, 0, gpu.free);
  }
  std::string where = absl::StrFormat(
      "%s GPU of %.4g GiB", is_here ? "this machine's" : "a", gib);
  if (shared.run.gpu_processes > 1) {
    absl::StrAppend(
        &where, " that ", shared.run.gpu_processes, " processes share");
  }
  const auto limits = PlanTrainerLimits(shared, model, gpu, teachers);
  if (limits.ok()) {
    return absl::StrCat("on ", where, ": ", Describe(*limits, model));
  }
  if (gpu_gib > 0) return limits.status();
  return absl::StrCat("none on ",
                      where,
                      is_here ? ": " : " (--gpu-gib): ",
                      std::string(limits.status().message()));
}

}  // namespace dapd
