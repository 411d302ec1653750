// Finds the products of kernels/cuda/pass_product.h for tensors on a device.
// tests/fakes/device_products_on_host.cc replaces device_products.cc and
// simulates such a device.
#pragma once

#include "common/kernels/cuda/pass_product.h"
#include "common/tensor/aten.h"

namespace dapd {

struct DeviceProducts {
  decltype(&DapdCudaPassProductFits) fits = nullptr;
  decltype(&DapdCudaPassProduct) multiply = nullptr;
};

// Returns the products for float32 and bfloat16 tensors on the device of `x`;
// null on the CPU and in a build without nvcc: LibTorch multiplies.
const DeviceProducts* DeviceProductsFor(const at::Tensor& x);

}  // namespace dapd
