#include "common/tensor/device_copy.h"

namespace dapd {

at::Tensor ToDevice(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  return host.pin_memory().to(
      device, host.scalar_type(), /*non_blocking=*/true);
}

}  // namespace dapd
