#include "common/model/fast/device_rows.h"

#include <optional>

#include "common/gpus/cuda_backend.h"

namespace dapd {
namespace {

template <typename Function>
bool Find(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(CudaSymbol(name));
  return *function != nullptr;
}

std::optional<DeviceRows> FindRows() {
  DeviceRows rows;
  const bool found =
      Find("DapdCudaNormRows", &rows.norm) &&
      Find("DapdCudaNormRowsBackward", &rows.norm_backward) &&
      Find("DapdCudaRotateRows", &rows.rotate) &&
      Find("DapdCudaRotateRowsBackward", &rows.rotate_backward) &&
      Find("DapdCudaGatedRows", &rows.gated) &&
      Find("DapdCudaGatedRowsBackward", &rows.gated_backward);
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
