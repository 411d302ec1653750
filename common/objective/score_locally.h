// Computes a teacher's scores in this process.
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

// Returns the scores of `passes` over one sample with in-process weights, of
// whichever teacher. `adapters` has every set of weights that the passes read;
// the base may be missing; null: that set has no adapter. Views that score
// nothing are left out. This is the reference implementation of the teacher
// service; `dapd replay` uses it.
std::map<TeacherPass, TeacherScores> ScoreLocally(
    const ModelWeights& weights,
    const std::map<WeightSet, const Adapter*>& adapters,
    const std::vector<TeacherPass>& passes,
    const Views& views);

}  // namespace dapd
