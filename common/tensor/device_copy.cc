#include "common/tensor/device_copy.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace dapd {

at::Tensor ToDevice(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  return host.pin_memory().to(
      device, host.scalar_type(), /*non_blocking=*/true);
}

HostCopies::HostCopies(std::vector<at::Tensor> tensors)
    : tensors_(std::move(tensors)) {
  std::optional<at::Device> device;
  for (at::Tensor& tensor : tensors_) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    device = tensor.device();
    const at::Tensor host =
        at::empty(tensor.sizes(),
                  at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
    tensor = host.copy_(tensor, /*non_blocking=*/true);
  }
  if (!device.has_value()) return;
  const c10::impl::VirtualGuardImpl guard(device->type());
  copied_.emplace(device->type());
  copied_->record(guard.getStream(*device));
}

std::vector<at::Tensor> HostCopies::Take() {
  if (copied_.has_value()) copied_->synchronize();
  return std::move(tensors_);
}

std::vector<at::Tensor> ToHost(std::vector<at::Tensor> tensors) {
  return HostCopies(std::move(tensors)).Take();
}

}  // namespace dapd
