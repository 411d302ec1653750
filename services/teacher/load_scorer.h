// The scorer of a teacher: which model it has, where, and how much it computes
// at a time.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/tensor/aten.h"
#include "services/teacher/model_scorer.h"
#include "services/teacher/scorer.h"

namespace dapd {

// What suits the device. A CPU packs a layer's weights once a pass, which costs
// as much as some 16 tokens. On a GPU a pass of 4,096 rows keeps all
// multiprocessors busy in every product of a model of 1.7B or more, and takes
// longer than its launches.
ScoringShape ScoringShapeFor(const TeacherSection& config, at::Device device);

struct LoadedScorer {
  std::unique_ptr<Scorer> scorer;
  WorkerDescription description;
};

// Reads the model that `config` names. Blocks for as long as the weights take
// to read.
absl::StatusOr<LoadedScorer> LoadModelScorer(const Config& config);

}  // namespace dapd
