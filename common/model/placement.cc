#include "common/model/placement.h"

#include <thread>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"

namespace dapd {

absl::StatusOr<at::Device> ParseDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  const bool has_cuda = torch::cuda::is_available();
  if (name == "auto") return at::Device(has_cuda ? at::kCUDA : at::kCPU);
  if (name != "cuda") {
    return ConfigError(
        absl::StrCat("model.device '", name, "' is none of auto, cpu, cuda"));
  }
  if (!has_cuda) {
    return ConfigError(
        "model.device is cuda, but no CUDA device can be used: the build needs "
        "DAPD_CUDA=ON and the machine a GPU with its driver; or set "
        "model.device to cpu");
  }
  return at::Device(at::kCUDA);
}

absl::StatusOr<at::ScalarType> ParsePrecision(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  return ConfigError(absl::StrCat(
      "model.precision '", name, "' is neither float32 nor bfloat16"));
}

const char* PrecisionName(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bfloat16" : "float32";
}

void SetComputeThreads(int64_t num_threads) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  at::set_num_threads(static_cast<int>(
      num_threads > 0 ? num_threads : std::max<int64_t>(1, cores)));
}

}  // namespace dapd
