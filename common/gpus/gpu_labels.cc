#include "common/gpus/gpu_labels.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/gpus/cuda_backend.h"

namespace dapd {

std::map<std::string, std::string> LabelsOf(const GpuReport& report,
                                            const std::string& kernels) {
  std::map<std::string, int> counts;
  for (const Gpu& gpu : report.gpus) ++counts[gpu.name];
  const std::string gpus =
      absl::StrJoin(counts, ", ", [](std::string* out, const auto& entry) {
        absl::StrAppend(out, entry.second, " x ", entry.first);
      });
  std::map<std::string, std::string> labels = {
      {"kernels", kernels}, {"driver", report.driver}, {"gpus", gpus}};
  std::erase_if(labels, [](const auto& label) { return label.second.empty(); });
  return labels;
}

std::map<std::string, std::string> GpuLabels(DeviceChoice device) {
  if (device == DeviceChoice::kCpu) return {};
  return LabelsOf(FindGpus(), CudaBackendPath().ok() ? CudaKernels() : "");
}

}  // namespace dapd
