// The choice of sampled answers to show.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/record/shown_answer.h"
#include "services/trainer/step/rollout_record.h"

namespace dapd {

// kStepAnswers answers of a batch, at SpreadPlaces; of groups that share a
// problem the first answers, if there are enough groups. Empty if none was
// sampled.
std::vector<ShownAnswer> ChooseStepAnswers(
    const std::vector<RolloutRecord>& records);

// The first answer to each of kHeldOutAnswers problems, at SpreadPlaces, of an
// evaluation with `samples` answers to each problem, which stand side by side.
std::vector<ShownAnswer> ChooseHeldOutAnswers(
    const std::vector<RolloutRecord>& records, int64_t samples);

}  // namespace dapd
