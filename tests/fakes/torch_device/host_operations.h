// Operations of the simulated device: each as its CPU twin, on the same memory.
#pragma once

#include <string>

#include "common/tensor/aten.h"

namespace dapd {

void CountLaunch(const std::string& name);

// The same memory as the host sees it.
at::Tensor OnHost(const at::Tensor& tensor);

// A result of the host's as the device's.
at::Tensor OnDevice(const at::Tensor& tensor);

}  // namespace dapd
