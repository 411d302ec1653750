// Small tensors of the host that a device needs.
#pragma once

#include "common/tensor/aten.h"

namespace dapd {

// `host`, which is contiguous on the CPU, on `device`. To a GPU it goes by way
// of pinned memory: neither the host nor what the GPU has to do waits for the
// copy, and the caller need not keep `host`. On the CPU it is `host` itself.
at::Tensor ToDevice(const at::Tensor& host, at::Device device);

}  // namespace dapd
