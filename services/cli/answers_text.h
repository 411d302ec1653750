// Formats a run's answers for a terminal
// (services/trainer/record/run_answers.h). All texts are escaped; LaTeX stays
// as it is written.
#pragma once

#include <cstddef>
#include <string>

#include "services/trainer/record/run_answers.h"

namespace dapd {

struct AnswersTextOptions {
  size_t count = 3;       // held-out problems to show
  size_t width = 100;     // columns, at least 40
  bool is_whole = false;  // false: cuts the middle of a long answer
};

// Returns held-out answers, problem by problem, before and after side by side;
// only the answers before if there is no later evaluation. Answers that became
// right or wrong come first; a line counts them among all.
std::string HeldOutText(const AnswersToShow& answers,
                        const AnswersTextOptions& options);

// Returns all answers of a step, one below the other.
std::string StepText(const StepAnswers& answers,
                     const AnswersTextOptions& options);

}  // namespace dapd
