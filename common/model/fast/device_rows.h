// Finds the element-wise kernels of kernels/cuda/training_rows.h for tensors on
// a device. tests/fakes/device_rows_on_host.cc replaces device_rows.cc and
// simulates such a device.
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

// Returns the kernels for tensors with the dtype and device of `x`. Null on the
// CPU and in a build without nvcc: tensor operations compute.
const DeviceRows* DeviceRowsFor(const at::Tensor& x);

// Returns the kernels' number type of a tensor that DeviceRowsFor accepts.
CudaNumber NumberOf(const at::Tensor& x);

}  // namespace dapd
