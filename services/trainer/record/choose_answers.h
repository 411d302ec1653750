// Which answers are shown, out of all that were sampled.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/record/shown_answer.h"
#include "services/trainer/step/rollout_record.h"

namespace dapd {

// kStepAnswers of a batch, at SpreadPlaces: of groups that share a problem the
// first answers, as long as there are groups enough. None where none was
// sampled.
std::vector<ShownAnswer> ChooseStepAnswers(
    const std::vector<RolloutRecord>& records);

// Of an evaluation with so many `samples` a problem, those of a problem side by
// side: the first answer to each of kHeldOutAnswers problems, at SpreadPlaces.
std::vector<ShownAnswer> ChooseHeldOutAnswers(
    const std::vector<RolloutRecord>& records, int64_t samples);

}  // namespace dapd
