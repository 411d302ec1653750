// The parts of `dapd serve` that need LibTorch, for files that include gRPC.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/rpc/transfer/served_policy.h"

namespace dapd {

// Returns the precision "float32", "bfloat16", or with "auto" the precision in
// which the folder's weights are stored.
absl::StatusOr<Precision> PrecisionNamed(const std::string& name,
                                         const std::string& model_folder);

// Returns the upload that makes a worker serve the adapter, or the base if
// `adapter_folder` is empty. Returns ReadAdapter's errors.
absl::StatusOr<AdapterUpload> UploadOfFolder(const std::string& model_folder,
                                             const std::string& adapter_folder);

}  // namespace dapd
