// What an evaluation found, its figures in summary.json, and its file
// evaluation/<when>.json.
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
#include "services/trainer/record/shown_answer.h"

namespace dapd {

// A term's unclipped KL, token mean a problem, then over problems; not a number
// where a problem's is not finite.
struct TermDivergence {
  std::string name;
  Interval unclipped;
  int64_t problems = 0;  // whose answers have a token of it; 0: in older runs
};

struct EvaluationReport {
  int64_t policy_version = 0;
  std::string adapter_digest;  // of the policy; empty in older runs
  // Of the held-out problems and of how they were asked (HeldOutDigest); empty
  // in older runs.
  std::string held_out_digest;
  int64_t problems = 0;
  int64_t samples = 0;  // answers per problem
  // Problems with something to grade against (common/data/expected_answer.h);
  // in older runs all, whose accuracy counts answers to the others as wrong.
  int64_t graded_problems = 0;
  // Avg@samples over the graded problems; nothing where there are none.
  std::optional<Interval> accuracy;
  Interval format_rate;  // answers with a box
  // Answers that contain evaluation.marker; nothing where it is empty, and in
  // older runs.
  std::string marker;
  std::optional<Interval> marker_rate;
  // Answers that ended at the limit, and in a loop (common/data/repetition.h);
  // nothing in older runs.
  std::optional<Interval> truncated;
  std::optional<Interval> repeated;
  double mean_tokens = 0.0;
  std::vector<TermDivergence> divergences;  // over evaluation.kl_problems
  double seconds = 0.0;
  // To a few of the problems, the same of every evaluation; none in older runs.
  std::vector<ShownAnswer> answers;
};

// The figures, without the answers.
nlohmann::ordered_json ToJson(const EvaluationReport& report);

// "48.0 % [40.1, 55.9]"
std::string PercentText(const Interval& interval);

// "accuracy 48.0 % [40.1, 55.9]", and of how many problems where it is not of
// all; "no accuracy (no problem has an expected answer)".
std::string AccuracyText(const EvaluationReport& report);

// Whether evaluations with these held_out_digests can be compared; an older
// run's is taken to be like any other.
inline bool MeasureTheSame(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() || a == b;
}

// Lines of the closing summary: both evaluations of a run side by side, of
// which one may be missing. What only one of them measured has a dash for the
// other.
std::string CompareEvaluations(const std::optional<EvaluationReport>& before,
                               const std::optional<EvaluationReport>& after);

// evaluation/<when>.json: ToJson and, beside it, "answers".
absl::Status WriteEvaluationReport(const std::string& path,
                                   const EvaluationReport& report);
// NOT_FOUND without the file; DATA_LOSS, which names it, for anything that
// WriteEvaluationReport did not write.
absl::StatusOr<EvaluationReport> ReadEvaluationReport(const std::string& path);

// By its name: "before", "after" or "step-000050".
using NamedEvaluation = std::pair<std::string, EvaluationReport>;

// Whether that is the name of one between the first step and the last.
inline bool IsWithinRun(absl::string_view when) {
  return absl::StartsWith(when, "step-");
}

// The name of the one behind that step.
std::string NameWithinRun(int64_t step);

// All of a run folder, in the order of their policies; none without any.
// Damaged ones are left out, with a warning; an error where the folder does not
// show them.
absl::StatusOr<std::vector<NamedEvaluation>> ReadEvaluationReports(
    const std::string& folder);
// Of these the newest, and those that measured the same as it.
absl::StatusOr<std::vector<NamedEvaluation>> ReadComparableEvaluations(
    const std::string& folder);

}  // namespace dapd
