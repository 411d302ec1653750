#include "services/cli/status_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/printable.h"
#include "common/data/marker_label.h"

namespace dapd {
namespace {

// Milliseconds below a second: small models take many steps in one.
std::string Seconds(double seconds) {
  const absl::Duration time = absl::Trunc(
      absl::Seconds(seconds), absl::Milliseconds(seconds < 1 ? 1 : 100));
  // Abseil writes zero without a unit.
  return time == absl::ZeroDuration() ? "0s" : absl::FormatDuration(time);
}

std::string PolicyText(const v1::WorkerStatus& worker) {
  if (worker.policy_version() < 0) return "no policy";
  if (worker.weights_size() < 2) {
    return absl::StrCat("policy ", worker.policy_version());
  }
  return absl::StrJoin(worker.weights(),
                       ", ",
                       [](std::string* out, const v1::WeightVersion& served) {
                         absl::StrAppend(
                             out, served.set(), " ", served.version());
                       });
}

std::string PhaseText(const v1::GetStatusResponse& status) {
  const std::string phase = Printable(status.phase());
  if (status.phase_total() == 0) return phase;
  std::string text = absl::StrCat(
      phase, ", ", status.phase_done(), " of ", status.phase_total());
  if (status.trained_ahead() > 0) {
    absl::StrAppend(
        &text, ", ", status.trained_ahead(), " micro-batches trained");
  }
  return text;
}

// Returns an empty text before this process has taken a step.
std::string RateText(const v1::GetStatusResponse& status) {
  if (status.seconds_per_step() == 0.0) return "";
  return absl::StrCat(", ",
                      Seconds(status.seconds_per_step()),
                      " a step, ",
                      Seconds(status.eta_seconds()),
                      " left");
}

std::string Percent(const v1::IntervalStatus& interval) {
  return absl::StrFormat("%.1f%% [%.1f, %.1f]",
                         100.0 * interval.mean(),
                         100.0 * interval.low(),
                         100.0 * interval.high());
}

// Returns ", claims None 0.0103 [0.0051, 0.0155]"; with three digits, since
// they may be far below a percent.
std::string ClaimsText(absl::string_view view,
                       const v1::IntervalStatus& interval) {
  return absl::StrFormat(", claims %s %.3g [%.3g, %.3g]",
                         view,
                         interval.mean(),
                         interval.low(),
                         interval.high());
}

std::string AccuracyText(const v1::EvaluationStatus& evaluation) {
  if (!evaluation.has_accuracy()) {
    return "no accuracy (no problem has an expected answer)";
  }
  // An older trainer does not send how many problems it grades.
  const int64_t graded = evaluation.graded_problems();
  return absl::StrCat(
      "accuracy ",
      Percent(evaluation.accuracy()),
      graded > 0 && graded < evaluation.problems()
          ? absl::StrCat(" of the ", graded, " problems with an answer")
          : "");
}

std::string EvaluationText(const v1::EvaluationStatus& evaluation) {
  return absl::StrFormat(
      "held out  %-7s %s, format rate %s%s, %.0f "
      "tokens%s%s%s%s (%d problems x %d)\n",
      Printable(evaluation.when()),
      AccuracyText(evaluation),
      Percent(evaluation.format_rate()),
      evaluation.has_marker_rate()
          ? absl::StrCat(", ",
                         MarkerLabel(evaluation.marker()),
                         " ",
                         Percent(evaluation.marker_rate()))
          : "",
      evaluation.mean_tokens(),
      evaluation.has_truncated()
          ? ", cut off " + Percent(evaluation.truncated())
          : "",
      evaluation.has_repeated()
          ? ", repeating " + Percent(evaluation.repeated())
          : "",
      evaluation.has_claims_none()
          ? ClaimsText("None", evaluation.claims_none())
          : "",
      evaluation.has_claims_cross()
          ? ClaimsText("Cross", evaluation.claims_cross())
          : "",
      evaluation.problems(),
      evaluation.samples());
}

std::string WorkerText(const v1::WorkerStatus& worker) {
  const bool is_further = !worker.teacher().empty();
  return absl::StrFormat(
      "%-9s %-22s %-10s %s, %d in flight%s%s\n",
      Printable(is_further ? absl::StrCat("teacher ", worker.teacher())
                           : worker.role()),
      Printable(worker.address()),
      Printable(worker.state()),
      is_further ? "its own model" : PolicyText(worker),
      worker.in_flight(),
      worker.last_error().empty() ? ""
      : worker.state() == "ready" ? "; was lost: "
                                  : ": ",
      Printable(worker.last_error()));
}

std::string LastStepText(const v1::GetStatusResponse& status) {
  return absl::StrFormat(
      "loss      %.6g   gradient norm %.6g (clipped at %.6g)   learning rate "
      "%.6g\n"
      "rollouts  %.1f tokens on average, at most %d\n"
      "speed     %.1f generated and %.1f scored tokens/s, %.3g samples/s\n",
      status.loss(),
      status.gradient_norm(),
      status.max_gradient_norm(),
      status.learning_rate(),
      status.mean_rollout_tokens(),
      status.max_rollout_tokens(),
      status.generated_tokens_per_second(),
      status.scored_tokens_per_second(),
      status.samples_per_second());
}

}  // namespace

std::string StatusText(const v1::GetStatusResponse& status) {
  std::string text = absl::StrFormat(
      "run       %s (%s), for %s\n"
      "phase     %s\n"
      "step      %d of %d%s\n"
      "policy    version %d, digest %s, snapshot of step %d\n",
      Printable(status.run_name()),
      Printable(status.run_folder()),
      Seconds(status.elapsed_seconds()),
      PhaseText(status),
      status.step(),
      status.total_steps(),
      RateText(status),
      status.step(),
      status.adapter_digest().empty()
          ? "(none)"
          : Printable(status.adapter_digest()).substr(0, 12),
      status.snapshot_step());
  if (status.step() > 0) text += LastStepText(status);
  if (status.sampler_mismatch_tokens() > 0) {
    absl::StrAppendFormat(&text,
                          "sampler   log-probabilities differ from the "
                          "trainer's by %.2g on average, at most %.2g\n",
                          status.sampler_mismatch_mean(),
                          status.sampler_mismatch_max());
  }
  for (const v1::TermStatus& term : status.terms()) {
    absl::StrAppendFormat(
        &text,
        "term      %-22s %10.6g  weight %.4f  clipped %.1f%%\n",
        Printable(term.name()),
        term.value(),
        term.weight(),
        100.0 * term.clipped_fraction());
    for (const v1::TeacherDivergence& teacher : term.teachers()) {
      absl::StrAppendFormat(&text,
                            "          %-22s %10.6g  unclipped, %d tokens\n",
                            absl::StrCat("from ", Printable(teacher.name())),
                            teacher.unclipped(),
                            teacher.tokens());
    }
  }
  for (const v1::RunWarning& warning : status.warnings()) {
    absl::StrAppendFormat(&text, "warning   %s\n", Printable(warning.text()));
  }
  for (const v1::EvaluationStatus& evaluation : status.evaluations()) {
    text += EvaluationText(evaluation);
  }
  const int64_t left_out =
      status.evaluation_count() - status.evaluations_size();
  if (left_out > 0) {
    absl::StrAppendFormat(
        &text,
        "held out  and %d earlier evaluation%s, in the run's evaluation/\n",
        left_out,
        left_out == 1 ? "" : "s");
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    text += WorkerText(worker);
  }
  return text;
}

}  // namespace dapd
