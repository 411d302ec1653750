// Copies small tensors from the host to a device, and from a device to the
// host.
#pragma once

#include <c10/core/Event.h>

#include <optional>
#include <vector>

#include "common/tensor/aten.h"

namespace dapd {

// Returns `host`, which must be contiguous on the CPU, on `device`. A copy to a
// GPU uses pinned memory: neither the host nor the GPU's work waits for the
// copy, and the caller need not keep `host`. On the CPU the result is `host`
// itself.
at::Tensor ToDevice(const at::Tensor& host, at::Device device);

// Copies of one device's tensors that are on their way to the CPU, through
// pinned memory. Undefined tensors stay undefined; tensors on the CPU are not
// copied.
class HostCopies {
 public:
  // Does not block the host.
  explicit HostCopies(std::vector<at::Tensor> tensors);
  // Waits once for the work that was launched before the copies, and for
  // nothing behind them. Must be called only once.
  std::vector<at::Tensor> Take();

 private:
  std::vector<at::Tensor> tensors_;
  std::optional<c10::Event> copied_;
};

// Copies all of `tensors` with one wait.
std::vector<at::Tensor> ToHost(std::vector<at::Tensor> tensors);

}  // namespace dapd
