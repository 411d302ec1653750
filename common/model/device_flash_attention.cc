#include "common/model/device_flash_attention.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/gpus/cuda_backend.h"
#include "common/model/flash_attention_3_check.h"

namespace dapd {
namespace {

std::optional<FlashAttention3> FindFlashAttention() {
  decltype(&DapdCudaHasFlashAttention3) has = nullptr;
  FlashAttention3 kernels;
  const bool found =
      FindCudaFunction("DapdCudaHasFlashAttention3", &has) &&
      FindCudaFunction("DapdCudaFlashAttention3Forward", &kernels.forward) &&
      FindCudaFunction("DapdCudaFlashAttention3Backward", &kernels.backward);
  if (!found || has() == 0) return std::nullopt;
  const std::string fault = FaultOfFlashAttention3(kernels);
  if (fault.empty()) return kernels;
  LogWarning(absl::StrCat("FlashAttention-3 is not used: ",
                          fault,
                          "; LibTorch's FlashAttention-2 computes attention"));
  return std::nullopt;
}

}  // namespace

const FlashAttention3* FlashAttention3OfDevice() {
  static const std::optional<FlashAttention3> kernels = FindFlashAttention();
  return kernels.has_value() ? &*kernels : nullptr;
}

}  // namespace dapd
