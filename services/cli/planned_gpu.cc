#include "services/cli/planned_gpu.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/gpus/gpu.h"
#include "common/model/spec/gpu_shares.h"

namespace dapd {
namespace {

// The GPU for which the published sizes are configured.
constexpr double kUsualGib = 80;

// Returns the processes that share the GPU of `process`, as `dapd run` counts
// them unless the configuration does.
int64_t ProcessesBeside(const Config& config,
                        size_t num_gpus,
                        const std::string& process) {
  if (config.run.gpu_processes != 1) return config.run.gpu_processes;
  std::vector<std::string> gpus;
  for (size_t i = 0; i < num_gpus; ++i) gpus.push_back(absl::StrCat(i));
  const std::vector<LocalProcess> processes = DealGpus(config, gpus);
  const auto found = std::ranges::find(processes, process, &LocalProcess::name);
  if (found == processes.end()) return 1;
  return std::max<int64_t>(1, ProcessesOnGpusOf(*found, processes));
}

}  // namespace

int64_t PlannedGpu::bytes() const { return static_cast<int64_t>(gib * kGiB); }

DeviceMemory PlannedGpu::BesideOthers(DeviceMemory planned) const {
  if (free_bytes.has_value()) {
    planned.free =
        std::clamp<int64_t>(*free_bytes - planned.own, 0, planned.free);
  }
  return planned;
}

PlannedGpu PlanGpu(const Config& config,
                   double gpu_gib,
                   const GpuReport& here,
                   const std::string& process) {
  PlannedGpu planned{.config = config,
                     .gib = gpu_gib > 0 ? gpu_gib : kUsualGib};
  planned.is_here = gpu_gib == 0 && here.usable.ok() && !here.gpus.empty();
  if (planned.is_here) {
    const Gpu& gpu = here.gpus.front();
    planned.gib = static_cast<double>(gpu.total_bytes) / kGiB;
    planned.free_bytes = gpu.free_bytes;
    planned.config.run.gpu_processes =
        ProcessesBeside(config, here.gpus.size(), process);
  }
  planned.name = absl::StrFormat("%s GPU of %.4g GiB",
                                 planned.is_here ? "this machine's" : "a",
                                 planned.gib);
  const int64_t processes = planned.config.run.gpu_processes;
  if (processes > 1) {
    absl::StrAppend(&planned.name, " that ", processes, " processes share");
  }
  return planned;
}

}  // namespace dapd
