// Finds faults that would end a run at its start, as far as files and this
// machine tell without a model being loaded: `dapd check` names them, and `dapd
// run` refuses before it starts a process, in the words of the service that
// would end.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/process_limits.h"
#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Whether the model's folder has weights, which then are what config.json says,
// by their headers (OpenWeightFiles); false if it has nothing that could be
// weights, as where only a plan is wanted. Exit code kData.
absl::StatusOr<bool> CheckWeights(const ModelConfig& model);

// A warning if the adapter of lora.start_from says that it was trained on
// another model of the hub than the configuration's.
std::string OtherBaseWarning(const Config& config, const ModelConfig& model);

// The needs of all processes of `dapd run` together.
ProcessNeeds NeedsOfRun(const Config& config);

// Whether the processes of `dapd run` can be started and its folder be locked
// on this machine. Leaves nothing there.
absl::Status CheckMachine(const Config& config);

}  // namespace dapd
