// Small tensors of the host that a device needs, and of a device that the host
// does.
#pragma once

#include <vector>

#include "common/tensor/aten.h"

namespace dapd {

// `host`, which is contiguous on the CPU, on `device`. To a GPU it goes by way
// of pinned memory: neither the host nor what the GPU has to do waits for the
// copy, and the caller need not keep `host`. On the CPU it is `host` itself.
at::Tensor ToDevice(const at::Tensor& host, at::Device device);

// `tensors`, all of one device, on the CPU, by way of pinned memory and with
// one wait for all of them. Undefined ones stay so; on the CPU they are as they
// are.
std::vector<at::Tensor> ToHost(std::vector<at::Tensor> tensors);

}  // namespace dapd
