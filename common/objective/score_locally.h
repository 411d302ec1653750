// A teacher's scores without a teacher.
#pragma once

#include <map>
#include <vector>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/objective/head_loss.h"
#include "common/terms/target.h"
#include "common/terms/view.h"
#include "common/terms/weight_set.h"

namespace dapd {

// What a teacher computes for `passes` of one sample with in-process weights:
// `adapters` has each set that they read but the base; null: it is the base.
// Views that score nothing are left out. The reference implementation of the
// teacher service, used by `dapd replay`.
std::map<TeacherPass, TeacherScores> ScoreLocally(
    const ModelWeights& weights,
    const std::map<WeightSet, const Adapter*>& adapters,
    const std::vector<TeacherPass>& passes,
    const Views& views);

}  // namespace dapd
