#include "common/model/device_flash_attention.h"

#include <optional>

#include "common/gpus/cuda_backend.h"

namespace dapd {
namespace {

std::optional<FlashAttention3> FindFlashAttention() {
  decltype(&DapdCudaHasFlashAttention3) has = nullptr;
  FlashAttention3 kernels;
  const bool found =
      FindCudaFunction("DapdCudaHasFlashAttention3", &has) &&
      FindCudaFunction("DapdCudaFlashAttention3Forward", &kernels.forward) &&
      FindCudaFunction("DapdCudaFlashAttention3Backward", &kernels.backward);
  return found && has() != 0 ? std::optional(kernels) : std::nullopt;
}

}  // namespace

const FlashAttention3* FlashAttention3OfDevice() {
  static const std::optional<FlashAttention3> kernels = FindFlashAttention();
  return kernels.has_value() ? &*kernels : nullptr;
}

}  // namespace dapd
