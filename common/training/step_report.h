// What is known about one optimizer step once it is done. What is shown of it,
// where and under which name, is a row of metric_table.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/objective/sampler_mismatch.h"
#include "common/terms/target.h"
#include "common/training/trainer_phase.h"

namespace dapd {

struct TermMetrics {
  std::string name;
  // Plain mean over micro-batches of what the term's reduction gives, 0 where a
  // micro-batch has no token of the term.
  double value = 0.0;
  double unclipped = 0.0;  // the same of the true divergence
  double weight = 0.0;
  int64_t tokens = 0;             // scored, all micro-batches
  double clipped_fraction = 0.0;  // clipped tokens / tokens
  // Of a routed target: the shares of the answers' tokens by Regime.
  std::optional<std::array<double, kNumRegimes>> regime_shares = {};
  // Of a clipped term in a run: whether the clip hides that it gets worse
  // (clip_watch.h).
  std::optional<bool> clip_hides = {};
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
  int64_t samples = 0;  // with an answer that was scored, or that need none
  // Samples whose answer has no token to score: only their reference's terms,
  // if the objective has any, are trained. With `samples` the whole batch.
  int64_t untrainable_samples = 0;
  // Samples without an answer that may stand in the reference's place.
  int64_t left_out_samples = 0;
  // Of this rank's training, spent waiting for layers (trainer.shard_base).
  double gather_wait_seconds = 0.0;
  // At this rank, of the micro-batches: those trained before its last answer.
  int64_t early_micro_batches = 0;
  // Tokens of views that this rank ran forward before their scores were there.
  int64_t forward_ahead_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t scored_tokens = 0;  // by the teachers
  int64_t payload_bytes = 0;  // from the teachers
  // Seconds that the scores cost the teachers: after an answer's last token,
  // and before it.
  double teacher_seconds = 0.0;
  double teacher_ahead_seconds = 0.0;
  double mean_rollout_tokens = 0.0;
  double truncated_fraction = 0.0;  // answers that hit max_new_tokens
  double boxed_fraction = 0.0;
  // Of the answers that can be graded, and of their groups those with at least
  // one right answer; nothing where none can.
  std::optional<double> correct_fraction;
  std::optional<double> solved_fraction;
  // Samples whose self-teacher has a sibling or feedback to read; those of
  // which the grader approved a candidate for the reference's place.
  double taught_fraction = 0.0;
  double verified_fraction = 0.0;
  SamplerMismatch sampler_mismatch;
};

}  // namespace dapd
