// Finds the expected answers against which answers are graded (grade_answer.h),
// and the rows without one.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/config/config.h"
#include "common/data/dataset.h"

namespace dapd {

// Returns the result that `answer` states; if it states none, the whole
// `answer`. If `answer` is empty, returns the result that `solution` states;
// empty if there is none. A text states its result behind "#### " in its last
// line, as in GSM8K, or in boxes (ExtractBoxed).
std::string ExpectedAnswer(absl::string_view answer,
                           absl::string_view solution);
std::string ExpectedAnswer(const Problem& problem);

// Warns of expected answers of `data` for which grades would be wrong: if it is
// not clear what some of them state (IsUnclear), and if most of them are whole
// texts (several lines, or more than 100 bytes), which no boxed answer equals.
// `path` is the place of the data, `setting` the setting that names the column
// of its answers.
void WarnOfBadAnswers(const std::string& path,
                      const std::string& setting,
                      const Dataset& data);

// Warns if problems of `held_out`, the data of evaluation.path, have no
// expected answer, which the built-in grader needs. The accuracy leaves them
// out.
void WarnOfUngradedProblems(const Config& config, const Dataset& held_out);

// Returns whether grades affect the training of `config`: rollout.source is
// verified, or a term reads sibling_rollout.
bool DependsOnGrades(const Config& config);

// If DependsOnGrades and the built-in grader grades, treats rows without an
// expected answer as data.on_bad_row says: either returns an error that names
// their places (exit code kData), or removes them from `data`, counts them in
// skipped_rows and names them in a warning. The result depends on the arguments
// only, so every rank keeps the same rows.
absl::Status ApplyAnswerRule(const Config& config, Dataset* data);

}  // namespace dapd
