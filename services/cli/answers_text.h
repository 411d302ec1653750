// A run's answers for a terminal (services/trainer/record/run_answers.h). All
// texts are escaped; LaTeX stays as it is written.
#pragma once

#include <cstddef>
#include <string>

#include "services/trainer/record/run_answers.h"

namespace dapd {

struct AnswersTextOptions {
  size_t count = 3;       // of the held-out problems
  size_t width = 100;     // columns, at least 40
  bool is_whole = false;  // else the middle of a long answer is left out
};

// Held-out answers to one problem below the other, before and after side by
// side; where there is no later evaluation, those before alone. Those that
// became right or wrong come first, and it says how many of all did.
std::string HeldOutText(const AnswersToShow& answers,
                        const AnswersTextOptions& options);

// All answers of a step, one below the other.
std::string StepText(const StepAnswers& answers,
                     const AnswersTextOptions& options);

}  // namespace dapd
