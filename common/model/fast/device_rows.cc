#include "common/model/fast/device_rows.h"

#include <optional>

#include "common/gpus/cuda_backend.h"

namespace dapd {
namespace {

std::optional<DeviceRows> FindRows() {
  DeviceRows rows;
  const bool found =
      FindCudaFunction("DapdCudaNormRows", &rows.norm) &&
      FindCudaFunction("DapdCudaNormRowsBackward", &rows.norm_backward) &&
      FindCudaFunction("DapdCudaRotateRows", &rows.rotate) &&
      FindCudaFunction("DapdCudaRotateRowsBackward", &rows.rotate_backward) &&
      FindCudaFunction("DapdCudaGatedRows", &rows.gated) &&
      FindCudaFunction("DapdCudaGatedRowsBackward", &rows.gated_backward);
  return found ? std::optional(rows) : std::nullopt;
}

}  // namespace

const DeviceRows* DeviceRowsFor(const at::Tensor& x) {
  if (!x.is_cuda() ||
      (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16)) {
    return nullptr;
  }
  static const std::optional<DeviceRows> rows = FindRows();
  return rows.has_value() ? &*rows : nullptr;
}

CudaNumber NumberOf(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat ? CudaNumber::kFloat32
                                       : CudaNumber::kBFloat16;
}

}  // namespace dapd
