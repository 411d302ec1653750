// The element-wise kernels of kernels/cuda/training_rows.h, for tensors on a
// device that has them. tests/fakes/device_rows_on_host.cc simulates such a
// device.
#pragma once

#include "common/kernels/cuda/training_rows.h"
#include "common/tensor/aten.h"

namespace dapd {

struct DeviceRows {
  decltype(&DapdCudaNormRows) norm = nullptr;
  decltype(&DapdCudaNormRowsBackward) norm_backward = nullptr;
  decltype(&DapdCudaRotateRows) rotate = nullptr;
  decltype(&DapdCudaRotateRowsBackward) rotate_backward = nullptr;
  decltype(&DapdCudaGatedRows) gated = nullptr;
  decltype(&DapdCudaGatedRowsBackward) gated_backward = nullptr;
};

// For `x` and what has its dtype and device; null: tensor operations compute
// it, on the CPU or in a build without nvcc.
const DeviceRows* DeviceRowsFor(const at::Tensor& x);

// Of DeviceRowsFor: float32 or bfloat16.
CudaNumber NumberOf(const at::Tensor& x);

}  // namespace dapd
