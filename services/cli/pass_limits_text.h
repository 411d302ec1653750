// The line of `dapd check` on the trainer's passes.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/gpus/gpu_report.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Returns one line, by the trainer's own rule
// (common/model/spec/pass_memory.h), for a GPU of `gpu_gib` GiB. With 0, a plan
// for a GPU (PlansForGpu) assumes the first GPU of this machine in `here`, with
// the processes that `dapd run` puts beside the trainer, or a GPU of 80 GiB if
// this machine has no usable GPU; any other plan is for the CPU. Returns a
// CONFIG error if the trainer does not fit a GPU whose size is given.
absl::StatusOr<std::string> PassLimitsText(
    const Config& config,
    const ModelConfig& model,
    double gpu_gib,
    const GpuReport& here,
    const FurtherTeachers& teachers = {});

}  // namespace dapd
