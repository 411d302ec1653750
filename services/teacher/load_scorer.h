// The scorer of a teacher: its model, its device, and the size of its passes.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/further_teachers.h"
#include "common/rpc/transfer/served_policy.h"
#include "services/teacher/scorer.h"

namespace dapd {

struct LoadedScorer {
  std::unique_ptr<Scorer> scorer;
  WorkerDescription description;
};

// Reads the model that `config` names; blocks until the weights are read.
absl::StatusOr<LoadedScorer> LoadModelScorer(const Config& config);

// Reads the model and the adapter of a further teacher, and digests their files
// meanwhile. `config` is the run's. The scorer serves them as the base, and no
// other set.
absl::StatusOr<LoadedScorer> LoadTeacherScorer(const Config& config,
                                               const FurtherTeacher& teacher);

}  // namespace dapd
