// What `dapd check` says of the trainer's passes.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/gpus/gpu_report.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// One line by the trainer's own rule (common/model/spec/pass_memory.h): on a
// GPU of `gpu_gib` GiB. 0: where a plan is for a GPU (PlansForGpu) on the first
// one of this machine's, `here`, with the processes that `dapd run` puts beside
// the trainer there, or on one of 80 GiB if there is none to use; else on the
// CPU. CONFIG error if the trainer does not fit a GPU whose size is given.
absl::StatusOr<std::string> PassLimitsText(const Config& config,
                                           const ModelConfig& model,
                                           double gpu_gib,
                                           const GpuReport& here);

}  // namespace dapd
