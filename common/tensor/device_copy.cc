#include "common/tensor/device_copy.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace dapd {

at::Tensor ToDevice(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  return host.pin_memory().to(
      device, host.scalar_type(), /*non_blocking=*/true);
}

std::vector<at::Tensor> ToHost(std::vector<at::Tensor> tensors) {
  std::optional<at::Device> device;
  for (at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    device = tensor.device();
    const at::Tensor host =
        at::empty(tensor.sizes(),
                  at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
    tensor = host.copy_(tensor, /*non_blocking=*/true);
  }
  if (!device.has_value()) return tensors;
  const c10::impl::VirtualGuardImpl guard(device->type());
  c10::Event copied(device->type());
  copied.record(guard.getStream(*device));
  copied.synchronize();
  return tensors;
}

}  // namespace dapd
