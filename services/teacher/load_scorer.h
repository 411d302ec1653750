// The scorer of a teacher: which model it has, where, and how much it computes
// at a time.
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

// Reads the model that `config` names. Blocks for as long as the weights take
// to read.
absl::StatusOr<LoadedScorer> LoadModelScorer(const Config& config);

}  // namespace dapd
