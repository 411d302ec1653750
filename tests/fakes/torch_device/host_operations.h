// Runs operations of the simulated device as the CPU's operations on the same
// memory.
#pragma once

#include <string>

#include "common/tensor/aten.h"

namespace dapd {

void CountLaunch(const std::string& name);

// Returns the same memory as a tensor on the host.
at::Tensor OnHost(const at::Tensor& tensor);

// Returns a result on the host as a tensor on the device.
at::Tensor OnDevice(const at::Tensor& tensor);

}  // namespace dapd
