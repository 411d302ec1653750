#include "common/rpc/transfer/wire_weights.h"

#include "absl/strings/str_cat.h"

namespace dapd {

v1::TeacherWeights ToWireWeights(WeightSet set) {
  switch (set) {
    case WeightSet::kBase:
      return v1::TEACHER_WEIGHTS_BASE;
    case WeightSet::kSnapshot:
      return v1::TEACHER_WEIGHTS_SNAPSHOT;
    case WeightSet::kEma:
      return v1::TEACHER_WEIGHTS_EMA;
    case WeightSet::kLive:
      return v1::TEACHER_WEIGHTS_LIVE;
  }
  return v1::TEACHER_WEIGHTS_UNSPECIFIED;
}

absl::StatusOr<WeightSet> FromWireWeights(v1::TeacherWeights weights) {
  switch (weights) {
    case v1::TEACHER_WEIGHTS_BASE:
      return WeightSet::kBase;
    case v1::TEACHER_WEIGHTS_SNAPSHOT:
      return WeightSet::kSnapshot;
    case v1::TEACHER_WEIGHTS_EMA:
      return WeightSet::kEma;
    case v1::TEACHER_WEIGHTS_LIVE:
      return WeightSet::kLive;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("weights ", static_cast<int>(weights), " are unknown"));
  }
}

}  // namespace dapd
