#include <functional>
#include <optional>
#include <type_traits>

#include "common/training/metric_table.h"

namespace dapd {
namespace {

using Read = std::function<std::vector<MetricValue>(const StepReport&)>;

// `get` reads a number from a report: a field or a function.
template <typename Get>
Read Value(Get get) {
  return [get](const StepReport& report) {
    return std::vector<MetricValue>{{"", std::invoke(get, report)}};
  };
}

// Reads a value that only some steps measure.
Read ValueIfAny(std::optional<double> StepReport::*field) {
  return [field](const StepReport& report) {
    std::vector<MetricValue> values;
    const std::optional<double>& number = report.*field;
    if (number.has_value()) values.push_back({"", *number});
    return values;
  };
}

template <typename Number>
Read PerTerm(Number TermMetrics::*field) {
  return [field](const StepReport& report) {
    std::vector<MetricValue> values;
    for (const TermMetrics& term : report.objective.terms) {
      values.push_back({term.name, term.*field});
    }
    return values;
  };
}

template <typename Number>
Read PerTeacher(Number TeacherDivergence::*field) {
  return [field](const StepReport& report) {
    std::vector<MetricValue> values;
    for (const TermMetrics& term : report.objective.terms) {
      for (const auto& [teacher, divergence] : term.by_teacher) {
        values.push_back({term.name, divergence.*field, teacher});
      }
    }
    return values;
  };
}

// Makes the row of a regime's share, for routed terms only.
StepMetric ShareOf(Regime regime) {
  const std::string name = NameOf(regime);
  return {
      .path = "terms/*/regimes/" + name,
      .tag = "regime_" + name + "/*",
      .prometheus = "dapd_trainer_regime_ratio",
      .help = "Share of the tokens of a routed term's answers by regime.",
      .labels = {{"regime", name}},
      .read = [regime](const StepReport& report) {
        std::vector<MetricValue> values;
        for (const TermMetrics& term : report.objective.terms) {
          if (!term.regime_shares.has_value()) continue;
          values.push_back(
              {term.name, (*term.regime_shares)[static_cast<size_t>(regime)]});
        }
        return values;
      }};
}

// Makes the row of clip_hides, for clipped terms only, and only in a run, which
// has steps to compare.
StepMetric ClipHides() {
  return {.path = "terms/*/clip_hides",
          .tag = "clip_hides/*",
          .prometheus = "dapd_trainer_clip_hides",
          .help =
              "1 while the clipped divergence of a term falls and its true "
              "one rises.",
          .read = [](const StepReport& report) {
            std::vector<MetricValue> values;
            for (const TermMetrics& term : report.objective.terms) {
              if (!term.clip_hides.has_value()) continue;
              values.push_back({term.name, int64_t{*term.clip_hides}});
            }
            return values;
          }};
}

std::vector<MetricValue> ReadSeconds(const StepReport& report) {
  std::vector<MetricValue> values;
  for (const TrainerPhaseName& row : kTrainerPhases) {
    if (row.part_of_step == nullptr) continue;
    values.push_back({row.part_of_step, report.seconds[row.phase]});
  }
  return values;
}

// Returns `row` with the number that `at` finds in every rank's report: a
// field, or a function that returns a reference.
template <typename At>
StepMetric OfRanks(RankRule rule, At at, StepMetric row) {
  row.rule = rule;
  row.read = Value(at);
  row.write = [at](StepReport& report, double value) {
    auto& number = std::invoke(at, report);
    number = static_cast<std::remove_reference_t<decltype(number)>>(value);
  };
  return row;
}

// Returns a function that finds a field of the sampler's mismatch in a report.
template <typename Number>
auto OfMismatch(Number SamplerMismatch::*field) {
  return [field](auto& report) -> auto& {
    return report.sampler_mismatch.*field;
  };
}

std::vector<StepMetric> ObjectiveRows() {
  return {
      {.path = "loss",
       .tag = "loss/total",
       .prometheus = "dapd_trainer_total_loss",
       .help = "Weighted sum of the terms.",
       .status = "loss",
       .read = Value([](const StepReport& r) { return r.objective.loss; })},
      {.path = "gradient_norm",
       .tag = "optim/grad_norm",
       .prometheus = "dapd_trainer_gradient_norm",
       .help = "Global gradient norm before clipping.",
       .status = "gradient_norm",
       .read = Value(
           [](const StepReport& r) { return r.optimizer.gradient_norm; })},
      {.path = "learning_rate",
       .tag = "optim/lr",
       .prometheus = "dapd_trainer_learning_rate",
       .help = "Learning rate of the last step.",
       .status = "learning_rate",
       .read = Value(
           [](const StepReport& r) { return r.optimizer.learning_rate; })},
      {.path = "terms/*/value",
       .tag = "loss/*",
       .prometheus = "dapd_trainer_loss",
       .help = "Clipped divergence of a term.",
       .status = "value",
       .read = PerTerm(&TermMetrics::value)},
      {.path = "terms/*/weight",
       .tag = "weight/*",
       .prometheus = "dapd_trainer_term_weight",
       .help = "Weight of a term in the loss.",
       .status = "weight",
       .read = PerTerm(&TermMetrics::weight)},
      {.path = "terms/*/tokens",
       .tag = "tokens/*",
       .prometheus = "dapd_trainer_term_tokens",
       .help = "Scored tokens of a term in the last step.",
       .read = PerTerm(&TermMetrics::tokens)},
      {.path = "terms/*/clipped_fraction",
       .tag = "clipped_fraction/*",
       .prometheus = "dapd_trainer_clipped_ratio",
       .help = "Share of scored tokens with a clipped vocabulary entry.",
       .status = "clipped_fraction",
       .read = PerTerm(&TermMetrics::clipped_fraction)},
      {.path = "terms/*/unclipped",
       .tag = "kl/*",
       .prometheus = "dapd_trainer_unclipped_divergence",
       .help = "True divergence of a term.",
       .read = PerTerm(&TermMetrics::unclipped)},
      {.path = "terms/*/teachers/*/unclipped",
       .tag = "teacher_kl/*/*",
       .prometheus = "dapd_trainer_teacher_divergence",
       .help = "True divergence of a term from each of the teachers that the "
               "rows name, over the teacher's tokens of the last step that had "
               "any.",
       .status = "unclipped",
       .read = PerTeacher(&TeacherDivergence::unclipped)},
      {.path = "terms/*/teachers/*/tokens",
       .tag = "teacher_tokens/*/*",
       .prometheus = "dapd_trainer_teacher_term_tokens",
       .help = "Scored tokens of a term whose rows name this teacher, in the "
               "last step that had any.",
       .status = "tokens",
       .read = PerTeacher(&TeacherDivergence::tokens)},
      ShareOf(Regime::kAgreeLikely),
      ShareOf(Regime::kAgreeUnlikely),
      ShareOf(Regime::kFirstSurer),
      ShareOf(Regime::kSecondSurer),
  };
}

std::vector<StepMetric> SampleRows() {
  return {
      {.path = "snapshot_version",
       .tag = "policy/snapshot_version",
       .prometheus = "dapd_trainer_snapshot_version",
       .help = "Optimizer step at which the snapshot was taken.",
       .status = "snapshot_step",
       .read = Value(&StepReport::snapshot_version)},
      {.path = "samples",
       .tag = "step/samples",
       .prometheus = "dapd_trainer_samples_total",
       .kind = MetricKind::kCounter,
       .help = "Samples by outcome.",
       .labels = {{"outcome", "trained"}},
       .read = Value(&StepReport::samples)},
      {.path = "untrainable_samples",
       .tag = "step/untrainable_samples",
       .prometheus = "dapd_trainer_samples_total",
       .kind = MetricKind::kCounter,
       .help = "Samples by outcome.",
       .labels = {{"outcome", "empty"}},
       .read = Value(&StepReport::untrainable_samples)},
      {.path = "left_out_samples",
       .tag = "step/left_out_samples",
       .prometheus = "dapd_trainer_samples_total",
       .kind = MetricKind::kCounter,
       .help = "Samples by outcome.",
       .labels = {{"outcome", "unverified"}},
       .read = Value(&StepReport::left_out_samples)},
      {.path = "early_micro_batches",
       .tag = "step/early_micro_batches",
       .prometheus = "dapd_trainer_early_micro_batches_total",
       .kind = MetricKind::kCounter,
       .help = "Micro-batches that rank 0 trained before its last answer.",
       .read = Value(&StepReport::early_micro_batches)},
      {.path = "forward_ahead_tokens",
       .tag = "step/forward_ahead_tokens",
       .prometheus = "dapd_trainer_forward_ahead_tokens_total",
       .kind = MetricKind::kCounter,
       .help =
           "Tokens that rank 0 ran forward before their scores had arrived.",
       .read = Value(&StepReport::forward_ahead_tokens)},
      {.path = "rollout/mean_tokens",
       .tag = "rollout/length",
       .prometheus = "dapd_trainer_rollout_tokens",
       .help = "Mean length of the last step's answers in tokens.",
       .status = "mean_rollout_tokens",
       .read = Value(&StepReport::mean_rollout_tokens)},
      {.path = "rollout/truncated_fraction",
       .tag = "rollout/truncated_ratio",
       .prometheus = "dapd_trainer_rollout_truncated_ratio",
       .help = "Share of the last step's answers that hit the length limit.",
       .read = Value(&StepReport::truncated_fraction)},
      {.path = "rollout/boxed_fraction",
       .tag = "rollout/boxed_ratio",
       .prometheus = "dapd_trainer_rollout_boxed_ratio",
       .help = "Share of the last step's answers with a boxed result.",
       .read = Value(&StepReport::boxed_fraction)},
      {.path = "rollout/correct_fraction",
       .tag = "rollout/accuracy",
       .prometheus = "dapd_trainer_rollout_accuracy_ratio",
       .help = "Share of correct answers among the last step's answers to "
               "problems with an expected result.",
       .read = ValueIfAny(&StepReport::correct_fraction)},
      {.path = "rollout/solved_fraction",
       .tag = "rollout/solved_ratio",
       .prometheus = "dapd_trainer_rollout_solved_ratio",
       .help = "Share of the last step's groups of answers to problems with an "
               "expected result that contain a correct one.",
       .read = ValueIfAny(&StepReport::solved_fraction)},
      {.path = "rollout/taught_fraction",
       .tag = "rollout/taught_ratio",
       .prometheus = "dapd_trainer_rollout_taught_ratio",
       .help = "Share of the last step's answers whose self-teacher had a "
               "correct sibling or feedback to read.",
       .read = Value(&StepReport::taught_fraction)},
      {.path = "rollout/verified_fraction",
       .tag = "rollout/verified_ratio",
       .prometheus = "dapd_trainer_rollout_verified_ratio",
       .help = "Share of the last step's samples for which the grader accepted "
               "an answer in place of the reference.",
       .read = Value(&StepReport::verified_fraction)},
  };
}

std::vector<StepMetric> MismatchRows() {
  return {
      OfRanks(RankRule::kSum,
              OfMismatch(&SamplerMismatch::tokens),
              {.path = "sampler_mismatch/tokens",
               .tag = "sampler_mismatch/tokens",
               .prometheus = "dapd_trainer_sampler_mismatch_tokens_total",
               .kind = MetricKind::kCounter,
               .help = "Sampled tokens whose log-probabilities were compared.",
               .status = "sampler_mismatch_tokens"}),
      OfRanks(
          RankRule::kSum,
          OfMismatch(&SamplerMismatch::sum),
          {.path = "sampler_mismatch/sum",
           .tag = "sampler_mismatch/sum",
           .prometheus = "dapd_trainer_sampler_mismatch_nats_total",
           .kind = MetricKind::kCounter,
           .help = "Sum over sampled tokens of the absolute difference between "
                   "the trainer's and the sampler's log-probability."}),
      OfRanks(
          RankRule::kMax,
          OfMismatch(&SamplerMismatch::largest),
          {.path = "sampler_mismatch/max",
           .tag = "sampler_mismatch/max",
           .prometheus = "dapd_trainer_sampler_mismatch_max",
           .help =
               "Largest absolute difference between the trainer's and the "
               "sampler's log-probability of a sampled token in the last step.",
           .status = "sampler_mismatch_max"}),
      {.path = "sampler_mismatch/mean",
       .tag = "sampler_mismatch/mean",
       .prometheus = "dapd_trainer_sampler_mismatch_mean",
       .help = "Mean absolute difference between the trainer's and the "
               "sampler's log-probability of the last step's sampled tokens.",
       .status = "sampler_mismatch_mean",
       .read = Value(
           [](const StepReport& r) { return r.sampler_mismatch.mean(); })},
  };
}

std::vector<StepMetric> CostRows() {
  const std::string teacher_help =
      "Seconds that teachers spent on the scores that were used: ahead of an "
      "answer's last token, or after it.";
  return {
      {.path = "generated_tokens",
       .tag = "step/generated_tokens",
       .prometheus = "dapd_trainer_generated_tokens_total",
       .kind = MetricKind::kCounter,
       .help = "Tokens of the rollouts that were used.",
       .read = Value(&StepReport::generated_tokens)},
      OfRanks(RankRule::kSum,
              &StepReport::scored_tokens,
              {.path = "scored_tokens",
               .tag = "step/scored_tokens",
               .prometheus = "dapd_trainer_scored_tokens_total",
               .kind = MetricKind::kCounter,
               .help = "Tokens that the teachers scored."}),
      OfRanks(RankRule::kSum,
              &StepReport::payload_bytes,
              {.path = "payload_bytes",
               .tag = "step/payload_bytes",
               .prometheus = "dapd_trainer_payload_bytes_total",
               .kind = MetricKind::kCounter,
               .help = "Bytes of scores received."}),
      OfRanks(RankRule::kSum,
              &StepReport::teacher_seconds,
              {.path = "teacher_seconds",
               .tag = "step/teacher_seconds",
               .prometheus = "dapd_trainer_teacher_seconds_total",
               .kind = MetricKind::kCounter,
               .help = teacher_help,
               .labels = {{"when", "after"}}}),
      OfRanks(RankRule::kSum,
              &StepReport::teacher_ahead_seconds,
              {.path = "teacher_ahead_seconds",
               .tag = "step/teacher_ahead_seconds",
               .prometheus = "dapd_trainer_teacher_seconds_total",
               .kind = MetricKind::kCounter,
               .help = teacher_help,
               .labels = {{"when", "ahead"}}}),
      {.path = "gather_wait_seconds",
       .tag = "step/gather_wait_seconds",
       .prometheus = "dapd_trainer_gather_wait_seconds_total",
       .kind = MetricKind::kCounter,
       .help = "Seconds that training at rank 0 waited for layers of the base "
               "that other ranks hold (trainer.shard_base).",
       .read = Value(&StepReport::gather_wait_seconds)},
      {.path = "seconds/*",
       .tag = "time/*",
       .prometheus = "dapd_trainer_step_duration_seconds",
       .kind = MetricKind::kHistogram,
       .help = "Time of a step by phase.",
       .read = ReadSeconds,
       .low = 0.001,
       .high = 10000},
      {.path = "step_seconds",
       .tag = "time/step",
       .prometheus = "dapd_trainer_step_seconds",
       .kind = MetricKind::kHistogram,
       .help = "Time of a step, all phases together.",
       .read = Value([](const StepReport& r) { return r.seconds.Sum(); }),
       .low = 0.001,
       .high = 10000},
  };
}

}  // namespace

const std::vector<StepMetric>& StepMetrics() {
  static const auto& table = *[] {
    auto* rows = new std::vector<StepMetric>;
    for (StepMetric& row : ObjectiveRows()) {
      row.is_objective = true;
      rows->push_back(std::move(row));
    }
    rows->push_back(ClipHides());
    for (const auto& part : {SampleRows(), MismatchRows(), CostRows()}) {
      rows->insert(rows->end(), part.begin(), part.end());
    }
    return rows;
  }();
  return table;
}

}  // namespace dapd
