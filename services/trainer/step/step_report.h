// What is known about one optimizer step once it is done.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/training/step_metrics.h"

namespace dapd {

struct StepReport {
  int64_t step = 0;  // from 1
  ObjectiveMetrics objective;
  OptimizerStep optimizer;
  std::string adapter_digest;  // after the step
  int64_t snapshot_version = 0;
  // Wall seconds by phase, of every phase.
  std::map<std::string, double> seconds = {{"rollout", 0.0},
                                           {"score", 0.0},
                                           {"train", 0.0},
                                           {"optimizer", 0.0},
                                           {"publish", 0.0}};
  int64_t samples = 0;  // trained
  // Of this rank's training, spent waiting for layers (trainer.shard_base).
  double gather_wait_seconds = 0.0;
  // At this rank, of the micro-batches: those trained before its last answer.
  int64_t early_micro_batches = 0;
  // Tokens of views that this rank ran forward before their scores were there.
  int64_t forward_ahead_tokens = 0;
  int64_t untrainable_samples = 0;
  int64_t generated_tokens = 0;
  int64_t scored_tokens = 0;   // by the teachers
  uint64_t payload_bytes = 0;  // from the teachers
  // Seconds that the scores cost the teachers: behind an answer's last token,
  // and before it.
  double teacher_seconds = 0.0;
  double teacher_ahead_seconds = 0.0;
  double mean_rollout_tokens = 0.0;
  double truncated_fraction = 0.0;  // answers that hit max_new_tokens
  double boxed_fraction = 0.0;
  double correct_fraction = 0.0;  // of problems with an answer
};

}  // namespace dapd
