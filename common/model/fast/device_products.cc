#include "common/model/fast/device_products.h"

#include <optional>

#include "common/gpus/cuda_backend.h"

namespace dapd {
namespace {

std::optional<DeviceProducts> FindProducts() {
  DeviceProducts products;
  const bool found =
      FindCudaFunction("DapdCudaPassProductFits", &products.fits) &&
      FindCudaFunction("DapdCudaPassProduct", &products.multiply);
  return found ? std::optional(products) : std::nullopt;
}

}  // namespace

const DeviceProducts* DeviceProductsFor(const at::Tensor& x) {
  if (!x.is_cuda() ||
      (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16)) {
    return nullptr;
  }
  static const std::optional<DeviceProducts> products = FindProducts();
  return products.has_value() ? &*products : nullptr;
}

}  // namespace dapd
