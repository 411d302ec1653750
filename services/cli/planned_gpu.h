// The GPU for which `dapd check` plans a process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/config/config.h"
#include "common/gpus/gpu_report.h"
#include "common/model/spec/pass_memory.h"

namespace dapd {

struct PlannedGpu {
  // The configuration with the processes that share the GPU
  // (run.gpu_processes).
  Config config;
  double gib = 0;
  bool is_here = false;               // a GPU of this machine
  std::optional<int64_t> free_bytes;  // measured
  // "a GPU of 80 GiB", "this machine's GPU of 24 GiB that 3 processes share".
  std::string name;

  int64_t bytes() const;
  // Returns what is left of `planned`, an empty GPU's memory after a process
  // has loaded its weights, beside what others hold of the measured GPU now.
  DeviceMemory BesideOthers(DeviceMemory planned) const;
};

// Returns a GPU of `gpu_gib` GiB; with 0 the first GPU of this machine in
// `here`, with the processes that `dapd run` puts beside `process` ("trainer",
// "rollout-0"), or a GPU of 80 GiB if this machine has no usable GPU.
PlannedGpu PlanGpu(const Config& config,
                   double gpu_gib,
                   const GpuReport& here,
                   const std::string& process);

}  // namespace dapd
