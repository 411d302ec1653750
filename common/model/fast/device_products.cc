#include "common/model/fast/device_products.h"

#include <optional>

#include "common/gpus/cuda_backend.h"

namespace dapd {
namespace {

std::optional<DeviceProducts> FindProducts() {
  DeviceProducts products;
  products.fits = reinterpret_cast<decltype(products.fits)>(
      CudaSymbol("DapdCudaPassProductFits"));
  products.multiply = reinterpret_cast<decltype(products.multiply)>(
      CudaSymbol("DapdCudaPassProduct"));
  return products.fits != nullptr && products.multiply != nullptr
             ? std::optional(products)
             : std::nullopt;
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
