// Converts sets of weights between the wire and the program.
#pragma once

#include "absl/status/statusor.h"

#include "common/terms/weight_set.h"
#include "dapd/v1/worker.pb.h"

namespace dapd {

v1::TeacherWeights ToWireWeights(WeightSet set);
// Returns INVALID_ARGUMENT for a number that names no set.
absl::StatusOr<WeightSet> FromWireWeights(v1::TeacherWeights weights);

}  // namespace dapd
