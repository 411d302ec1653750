// The scorer of a teacher: its model, its device, and the size of its passes.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/rpc/transfer/served_policy.h"
#include "services/teacher/scorer.h"

namespace dapd {

struct LoadedScorer {
  std::unique_ptr<Scorer> scorer;
  WorkerDescription description;
};

// Reads the model that `config` names; blocks until the weights are read.
absl::StatusOr<LoadedScorer> LoadModelScorer(const Config& config);

}  // namespace dapd
