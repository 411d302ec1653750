// The products of kernels/cuda/pass_product.h, for tensors on a device that has
// them. tests/fakes/device_products_on_host.cc simulates such a device.
#pragma once

#include "common/kernels/cuda/pass_product.h"
#include "common/tensor/aten.h"

namespace dapd {

struct DeviceProducts {
  decltype(&DapdCudaPassProductFits) fits = nullptr;
  decltype(&DapdCudaPassProduct) multiply = nullptr;
};

// For float32 and bfloat16 tensors on the device of `x`; null: LibTorch
// multiplies, on the CPU or in a build without nvcc.
const DeviceProducts* DeviceProductsFor(const at::Tensor& x);

}  // namespace dapd
