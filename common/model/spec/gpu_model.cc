#include "common/model/spec/gpu_model.h"

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"

namespace dapd {

absl::Status CheckGpuModel(Precision precision, const ModelConfig& model) {
  const bool is_float = precision == Precision::kFloat32;
  const int64_t multiple = is_float ? 4 : 8;
  const bool is_taken =
      model.head_dim % multiple == 0 && (is_float || model.head_dim <= 256);
  if (is_taken) return absl::OkStatus();
  return ConfigError(absl::StrCat(
      "attention on a GPU takes head dimensions that are multiples of ",
      multiple,
      is_float ? "" : " and at most 256",
      " in ",
      NameOf(precision),
      ", but the model's is ",
      model.head_dim,
      "; set model.device to cpu"));
}

}  // namespace dapd
