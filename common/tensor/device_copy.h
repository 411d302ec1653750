// Small tensors of the host that a device needs, and of a device that the host
// does.
#pragma once

#include <c10/core/Event.h>

#include <optional>
#include <vector>

#include "common/tensor/aten.h"

namespace dapd {

// `host`, which is contiguous on the CPU, on `device`. To a GPU it goes by way
// of pinned memory: neither the host nor what the GPU has to do waits for the
// copy, and the caller need not keep `host`. On the CPU it is `host` itself.
at::Tensor ToDevice(const at::Tensor& host, at::Device device);

// Tensors of one device on their way to the CPU, by way of pinned memory.
// Undefined ones stay so; those of the CPU are as they are.
class HostCopies {
 public:
  // The host waits for nothing.
  explicit HostCopies(std::vector<at::Tensor> tensors);
  // Waits once for what was launched before the copies, and for nothing behind
  // them. To be called once.
  std::vector<at::Tensor> Take();

 private:
  std::vector<at::Tensor> tensors_;
  std::optional<c10::Event> copied_;
};

// HostCopies that are taken at once: one wait for all of `tensors`.
std::vector<at::Tensor> ToHost(std::vector<at::Tensor> tensors);

}  // namespace dapd
