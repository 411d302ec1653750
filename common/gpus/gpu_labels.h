// Makes the labels of the metric dapd_build_info that describe GPUs.
#pragma once

#include <map>
#include <string>

#include "common/gpus/gpu_report.h"

namespace dapd {

// Returns the labels of a process with `report`: `kernels`, this project's GPU
// kernels in the build (CudaKernels); `driver`; and `gpus`, the visible GPUs,
// "2 x NVIDIA H100 80GB HBM3". A label without a value is left out.
std::map<std::string, std::string> LabelsOf(const GpuReport& report,
                                            const std::string& kernels);

// Returns the labels of this process; none if `device` (model.device) is the
// CPU: the driver is not asked then.
std::map<std::string, std::string> GpuLabels(DeviceChoice device);

}  // namespace dapd
