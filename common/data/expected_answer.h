// What a problem's answers are graded against (grade_answer.h), and the rows
// that have nothing to grade against.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/data/dataset.h"

namespace dapd {

// The data's answer or, without one, the solution's last boxed result; empty if
// there is neither.
std::string ExpectedAnswer(const Problem& problem);

// Whether what a run of `config` trains depends on grades: rollout.source
// verified, or a term that reads sibling_rollout.
bool DependsOnGrades(const Config& config);

// Where DependsOnGrades, does with the rows without an expected answer what
// data.on_bad_row says: an error that names them by place (exit code of the
// data), or they are left out of `data`, counted in skipped_rows and named in a
// warning. A function of its arguments alone, so every rank is left with the
// same rows.
absl::Status ApplyAnswerRule(const Config& config, Dataset* data);

}  // namespace dapd
