// What `dapd check` says of the devices of this machine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/gpus/gpu_report.h"
#include "common/model/spec/memory_plan.h"

namespace dapd {

// Lines: the build's kernels, the driver, the GPUs or why none can be used, and
// whether the processes that `dapd run` would start here fit on them. None
// where model.device is cpu. `takes_model`: what CheckGpuModel says;
// `has_backend`: this build can use GPUs.
std::vector<std::string> DeviceText(const Config& config,
                                    const absl::Status& takes_model,
                                    const MemoryPlan& plan,
                                    const GpuReport& report,
                                    bool has_backend);

}  // namespace dapd
