// EvaluationReport: the results of an evaluation, their form in summary.json,
// and their file evaluation/<when>.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

#include "common/data/confidence_interval.h"
#include "services/trainer/record/claim_figures.h"
#include "services/trainer/record/shown_answer.h"

namespace dapd {

// A term's unclipped KL: the mean over a problem's tokens, then over problems;
// NaN if a problem's KL is not finite.
struct TermDivergence {
  std::string name;
  Interval unclipped;
  int64_t problems = 0;  // with a token of the term; 0: in older runs
};

struct EvaluationReport {
  int64_t policy_version = 0;
  std::string adapter_digest;  // of the policy; empty in older runs
  // HeldOutDigest of the held-out problems and of the way they were asked;
  // empty in older runs.
  std::string held_out_digest;
  int64_t problems = 0;
  int64_t samples = 0;  // answers per problem
  // Problems with an expected answer (common/data/expected_answer.h). Older
  // runs count all problems, and answers to problems without one as wrong.
  int64_t graded_problems = 0;
  // Avg@samples over the graded problems; nothing if there are none.
  std::optional<Interval> accuracy;
  Interval format_rate;  // answers with a box
  // evaluation.marker, and the share of answers that contain it; nothing if the
  // marker is empty, and in older runs.
  std::string marker;
  std::optional<Interval> marker_rate;
  // Shares of answers that ended at the length limit, and that ended in a loop
  // (common/data/repetition.h); nothing in older runs.
  std::optional<Interval> truncated;
  std::optional<Interval> repeated;
  double mean_tokens = 0.0;
  std::vector<TermDivergence> divergences;  // over evaluation.kl_problems
  // Over the same problems; nothing without evaluation.claims.
  std::optional<ClaimFigures> claims;
  double seconds = 0.0;
  // Answers to a few problems, the same problems in every evaluation; none in
  // older runs.
  std::vector<ShownAnswer> answers;
};

// Returns the figures, without the answers.
nlohmann::ordered_json ToJson(const EvaluationReport& report);

// Returns "48.0 % [40.1, 55.9]"
std::string PercentText(const Interval& interval);

// Returns "accuracy 48.0 % [40.1, 55.9]", with the number of graded problems
// unless all are graded; or "no accuracy (no problem has an expected answer)".
std::string AccuracyText(const EvaluationReport& report);

// Returns whether evaluations with these held_out_digests can be compared; an
// empty digest, of an older run, matches any.
inline bool MeasureTheSame(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() || a == b;
}

// Returns lines of the closing summary with both evaluations of a run side by
// side; either may be missing. A figure that only one evaluation has gets a
// dash in the other evaluation's column.
std::string CompareEvaluations(const std::optional<EvaluationReport>& before,
                               const std::optional<EvaluationReport>& after);

// Writes evaluation/<when>.json: ToJson and, beside it, "answers" and
// "claim_answers".
absl::Status WriteEvaluationReport(const std::string& path,
                                   const EvaluationReport& report);
// Returns NOT_FOUND without the file, and DATA_LOSS with its name for anything
// that WriteEvaluationReport did not write.
absl::StatusOr<EvaluationReport> ReadEvaluationReport(const std::string& path);

// An evaluation with its name: "before", "after" or "step-000050".
using NamedEvaluation = std::pair<std::string, EvaluationReport>;

// Returns whether this is the name of an evaluation between the first and the
// last step.
inline bool IsWithinRun(absl::string_view when) {
  return absl::StartsWith(when, "step-");
}

// Returns the name of the evaluation after that step.
std::string NameWithinRun(int64_t step);

// Returns all evaluations of a run folder, in the order of their policies.
// Damaged files are left out, with a warning; returns an error if the folder
// cannot be listed.
absl::StatusOr<std::vector<NamedEvaluation>> ReadEvaluationReports(
    const std::string& folder);
// Returns the newest of these evaluations, and the others with a comparable
// held-out digest (MeasureTheSame).
absl::StatusOr<std::vector<NamedEvaluation>> ReadComparableEvaluations(
    const std::string& folder);

}  // namespace dapd
