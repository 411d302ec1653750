// The lines of `dapd check` on the devices of this machine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/gpus/gpu_report.h"
#include "common/model/spec/machine_split.h"
#include "common/model/spec/memory_plan.h"

namespace dapd {

// Returns lines with the build's kernels, the driver, the GPUs or the reason
// why none can be used, the processes that `dapd run` would start on each GPU,
// and whether they fit. `split`: the split of the GPUs in `report`, if they can
// be used; `takes_model`: CheckGpuModel's result; `plan`: the plan of the
// split's configuration; `has_backend`: whether this build can use GPUs.
std::vector<std::string> DeviceText(const absl::StatusOr<MachineSplit>& split,
                                    const absl::Status& takes_model,
                                    const MemoryPlan& plan,
                                    const GpuReport& report,
                                    bool has_backend);

}  // namespace dapd
