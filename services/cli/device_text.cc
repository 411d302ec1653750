#include "services/cli/device_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "common/gpus/cuda_backend.h"
#include "common/model/spec/gpu_shares.h"

namespace dapd {
namespace {

std::string Line(const char* name, const std::string& text) {
  return absl::StrFormat("%-16s %s", name, text);
}

std::string Driver(const GpuReport& report) {
  if (report.cuda_version == 0) {
    return report.driver.empty() ? "none" : report.driver;
  }
  return absl::StrCat(
      report.driver.empty() ? "of unknown series" : report.driver,
      ", for CUDA up to ",
      CudaVersionText(report.cuda_version));
}

std::string Kernels(bool has_backend) {
  const std::string built = CudaKernels();
  if (!has_backend) return "none for GPUs: this build has no CUDA backend";
  return built.empty() ? "LibTorch's on GPUs"
                       : absl::StrCat("our own on GPUs, ", built);
}

std::string Fit(const absl::Status& fit) {
  if (fit.ok()) return "everything that dapd run starts fits on them";
  const bool may_pass = absl::IsResourceExhausted(fit);
  return absl::StrCat(
      may_pass ? "dapd run would wait: " : "dapd run is refused here: ",
      std::string(fit.message()));
}

absl::Status CheckFit(const absl::StatusOr<MachineSplit>& split,
                      const absl::Status& takes_model,
                      const MemoryPlan& plan) {
  RETURN_IF_ERROR(takes_model);
  RETURN_IF_ERROR(split.status());
  return CheckShares(
      DealGpus(split->config, split->names), plan, split->names, split->gpus);
}

}  // namespace

std::vector<std::string> DeviceText(const absl::StatusOr<MachineSplit>& split,
                                    const absl::Status& takes_model,
                                    const MemoryPlan& plan,
                                    const GpuReport& report,
                                    bool has_backend) {
  std::vector<std::string> lines = {Line("kernels", Kernels(has_backend)),
                                    Line("driver", Driver(report))};
  const char* name = "gpus";
  for (const std::string& gpus : DescribeGpus(report.gpus)) {
    lines.push_back(Line(name, gpus));
    name = "";
  }
  if (!report.usable.ok()) {
    lines.push_back(Line(
        name,
        absl::StrCat("none usable: ", std::string(report.usable.message()))));
    return lines;
  }
  if (split.ok() && !split->text.empty()) {
    lines.push_back(Line("dapd run", split->text));
  }
  lines.push_back(Line("fit", Fit(CheckFit(split, takes_model, plan))));
  return lines;
}

}  // namespace dapd
