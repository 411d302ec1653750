// The choice of sampled answers to show.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/record/shown_answer.h"
#include "services/trainer/step/rollout_record.h"

namespace dapd {

// Returns kStepAnswers answers of a batch, at SpreadPlaces; only the first
// answer of each group that shares a problem, if there are enough groups; empty
// if no answer was sampled.
std::vector<ShownAnswer> ChooseStepAnswers(
    const std::vector<RolloutRecord>& records);

// Returns the first answer to each of kHeldOutAnswers problems, at
// SpreadPlaces, of an evaluation with `samples` answers to each problem, which
// stand side by side.
std::vector<ShownAnswer> ChooseHeldOutAnswers(
    const std::vector<RolloutRecord>& records, int64_t samples);

}  // namespace dapd
