#include "services/cli/serve/local_model.h"

#include "common/base/status_macros.h"
#include "common/model/spec/model_config.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/placement.h"
#include "common/model/weights/weights.h"

namespace dapd {

absl::StatusOr<Precision> PrecisionNamed(const std::string& name,
                                         const std::string& model_folder) {
  if (const auto named = ParseName<Precision>(name)) return *named;
  ASSIGN_OR_RETURN(const at::ScalarType stored, StoredPrecision(model_folder));
  return PrecisionOf(stored);
}

absl::StatusOr<AdapterUpload> UploadOfFolder(
    const std::string& model_folder, const std::string& adapter_folder) {
  AdapterUpload upload;
  upload.probe_ids = {0, 1};
  upload.is_base = adapter_folder.empty();
  if (upload.is_base) return upload;
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(model_folder));
  ASSIGN_OR_RETURN(const Adapter adapter,
                   ReadAdapter(adapter_folder, model, at::kCPU));
  ASSIGN_OR_RETURN(upload.adapter,
                   SerializeAdapter(adapter, /*base_model_path=*/""));
  return upload;
}

}  // namespace dapd
