// What the metric dapd_build_info says of GPUs.
#pragma once

#include <map>
#include <string>

#include "common/gpus/gpu_report.h"

namespace dapd {

// Labels for a process with `report`: `kernels`, those of our own that it has
// for GPUs (CudaKernels), the `driver`, and `gpus`, those that it sees, "2 x
// NVIDIA H100 80GB HBM3". One that there is nothing to say for is left out.
std::map<std::string, std::string> LabelsOf(const GpuReport& report,
                                            const std::string& kernels);

// Of this process; none where `device`, its model.device, is the CPU: the
// driver is not asked then.
std::map<std::string, std::string> GpuLabels(DeviceChoice device);

}  // namespace dapd
