// Finds faults that would end a run at its start, as far as files and this
// machine show them without loading a model: `dapd check` lists them, and `dapd
// run` refuses before it starts a process, with the message of the service that
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

// Returns whether the model's folder has weights, whose headers must match
// config.json (OpenWeightFiles); false if it has nothing that could be weights,
// which is enough for a plan. Exit code kData.
absl::StatusOr<bool> CheckWeights(const ModelConfig& model);

// Checks the further teachers that the terms read: their weights (as
// CheckWeights, but they must be there), their adapters, and their tokens
// (teacher_text.h). An error names the teacher.
absl::Status CheckFurtherTeachers(const Config& config);

// Returns a warning if the adapter of lora.start_from names another model of
// the hub as its base than the configuration's.
std::string OtherBaseWarning(const Config& config, const ModelConfig& model);

// Returns the needs of all processes of `dapd run` together.
ProcessNeeds NeedsOfRun(const Config& config);

// Checks that this machine lets the processes of `dapd run` start and lock
// their folder. Leaves nothing behind.
absl::Status CheckMachine(const Config& config);

}  // namespace dapd
