// The data of one completed optimizer step. A row of metric_table.h decides
// where a field is shown and under which name.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/objective/sampler_mismatch.h"
#include "common/terms/target.h"
#include "common/training/trainer_phase.h"

namespace dapd {

// A term's divergence from one teacher in a step.
struct TeacherDivergence {
  // Mean of the true divergence over the teacher's tokens or, if the term's
  // reduction averages answers, over its answers with a scored token.
  double unclipped = 0.0;
  int64_t tokens = 0;  // scored; at least 1
};

struct TermMetrics {
  std::string name;
  // Plain mean over micro-batches of the term's reduction, which is 0 for a
  // micro-batch without a token of the term.
  double value = 0.0;
  double unclipped = 0.0;  // the same mean of the true divergence
  double weight = 0.0;
  int64_t tokens = 0;             // scored, all micro-batches
  double clipped_fraction = 0.0;  // clipped tokens / tokens
  // For a routed target: the shares of the answers' tokens by Regime.
  std::optional<std::array<double, kNumRegimes>> regime_shares = {};
  // For a clipped term in a run: whether the clip hides that it gets worse
  // (clip_watch.h).
  std::optional<bool> clip_hides = {};
  // For a term whose rows name their teachers: by the teachers of this step;
  // the student's own is "base".
  std::map<std::string, TeacherDivergence> by_teacher = {};
};

struct ObjectiveMetrics {
  double loss = 0.0;  // sum of weight * value
  std::vector<TermMetrics> terms;
};

struct OptimizerStep {
  double gradient_norm = 0.0;  // before clipping
  double learning_rate = 0.0;
  bool snapshot_refreshed = false;
};

struct StepReport {
  int64_t step = 0;  // from 1
  ObjectiveMetrics objective;
  OptimizerStep optimizer;
  std::string adapter_digest;  // after the step
  int64_t snapshot_version = 0;
  PhaseSeconds seconds;
  int64_t samples = 0;  // samples with a scored answer, or that need no answer
  // Samples whose answer has no token to score: only the terms of their
  // reference, if the objective has any, are trained. Together with `samples`
  // they are the whole batch.
  int64_t untrainable_samples = 0;
  // Samples without an answer that may replace the reference.
  int64_t left_out_samples = 0;
  // Seconds of this rank's training in which it waited for layers
  // (trainer.shard_base).
  double gather_wait_seconds = 0.0;
  // Micro-batches of this rank that were trained before its last answer
  // arrived.
  int64_t early_micro_batches = 0;
  // Tokens of views that this rank ran forward before their scores arrived.
  int64_t forward_ahead_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t scored_tokens = 0;  // by the teachers
  int64_t payload_bytes = 0;  // from the teachers
  // Seconds that teachers computed scores: after the last token of an answer,
  // and before it.
  double teacher_seconds = 0.0;
  double teacher_ahead_seconds = 0.0;
  double mean_rollout_tokens = 0.0;
  double truncated_fraction = 0.0;  // answers that hit max_new_tokens
  double boxed_fraction = 0.0;
  // Fraction of right answers among the answers that can be graded, and
  // fraction of their groups with at least one right answer; no value if no
  // answer can be graded.
  std::optional<double> correct_fraction;
  std::optional<double> solved_fraction;
  // Fractions of samples: those whose self-teacher has a sibling or feedback to
  // read, and those whose candidate for replacing the reference the grader
  // approved.
  double taught_fraction = 0.0;
  double verified_fraction = 0.0;
  SamplerMismatch sampler_mismatch;
};

}  // namespace dapd
