// What a problem's answers are graded against (grade_answer.h), and the rows
// that have nothing to grade against.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/config/config.h"
#include "common/data/dataset.h"

namespace dapd {

// The data's answer: where it is worked text that states its result, that, else
// the whole. Without an answer, the result that the solution states; empty if
// there is neither. A result is stated behind "#### " in the last line, as in
// GSM8K, or in boxes (ExtractBoxed).
std::string ExpectedAnswer(absl::string_view answer,
                           absl::string_view solution);
std::string ExpectedAnswer(const Problem& problem);

// Warns of expected answers of `data` that grades would be wrong about: if it
// is not clear what some of them state (IsUnclear), and if most of them are
// whole texts, of several lines or more than 100 bytes, which no boxed answer
// equals. `path`, `setting`: where the data is, and what names the column of
// its answers.
void WarnOfBadAnswers(const std::string& path,
                      const std::string& setting,
                      const Dataset& data);

// Warns if problems of `held_out`, the data of evaluation.path, have nothing to
// grade answers against: the accuracy leaves them out.
void WarnOfUngradedProblems(const Config& config, const Dataset& held_out);

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
