// SliceTrainer: the micro-batches of one rank's slice of a step, always in the
// order of the batch, so that the gradient is the same bit for bit whenever
// each of them was trained: as soon as its samples are scored, while later
// answers are still sampled, or at last.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/objective/head_workspace.h"
#include "common/training/step_metrics.h"
#include "services/trainer/batch_trainer_parts.h"
#include "services/trainer/sample_pipeline.h"
#include "services/trainer/step_report.h"

namespace dapd {

// Not thread-safe: owned by the compute thread.
class SliceTrainer {
 public:
  // For the `num_samples` samples that `pipeline` was started with, whose
  // grouping stays that of the batch. All must outlive it. `report` gets the
  // seconds of the phases.
  SliceTrainer(const BatchTrainerParts& parts,
               SamplePipeline& pipeline,
               HeadWorkspace& workspace,
               size_t num_samples,
               StepReport* report);

  // While another thread collects answers, in the phase "rollout": trains each
  // micro-batch whose samples are scored, until `is_collected`, which may be
  // late by a micro-batch or a few milliseconds.
  absl::Status TrainAhead(const std::function<bool()>& is_collected);

  // Trains what is left, in the phases "scoring" and "training". All answers
  // must have been collected.
  absl::Status TrainRest();

  // Micro-batches that added to the gradient: those with a trainable sample.
  // The gradient is their sum.
  int64_t num_trained() const { return num_trained_; }
  // Their losses.
  ObjectiveAccumulator& objective() { return objective_; }

 private:
  size_t End() const;  // of the next micro-batch
  // Whether the next micro-batch has no sample that is still to come.
  bool IsScored() const;
  // Takes the next micro-batch's samples; blocks for their scores.
  absl::StatusOr<std::vector<ScoredSample>> Take();
  void Train(const std::vector<ScoredSample>& samples);

  const BatchTrainerParts& parts_;
  SamplePipeline& pipeline_;
  HeadWorkspace& workspace_;
  const size_t num_samples_;
  StepReport* const report_;
  size_t next_ = 0;  // first sample that was not taken
  int64_t num_trained_ = 0;
  ObjectiveAccumulator objective_;
};

}  // namespace dapd
