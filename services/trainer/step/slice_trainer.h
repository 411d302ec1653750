// SliceTrainer: trains the micro-batches of one rank's slice of a step. Each is
// trained once its samples are scored, whichever comes first, even while later
// answers are still sampled; meanwhile forward passes run over known tokens.
// The gradients are summed in the order of the batch: a result out of turn
// waits, so the sum is the same, bit for bit, whenever each micro-batch was
// trained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/byte_budget.h"
#include "common/objective/forward_ahead.h"
#include "common/objective/head_workspace.h"
#include "common/objective/micro_batch.h"
#include "common/training/step_metrics.h"
#include "common/training/step_report.h"
#include "services/trainer/step/batch_trainer_parts.h"
#include "services/trainer/step/sample_pipeline.h"

namespace dapd {

// Not thread-safe: owned by the compute thread.
class SliceTrainer {
 public:
  // Trains the `num_samples` samples that `pipeline` was started with, in
  // micro-batches as the batch groups them. All references must outlive it.
  // `report` gets the seconds of the phases.
  SliceTrainer(const BatchTrainerParts& parts,
               SamplePipeline& pipeline,
               HeadWorkspace& workspace,
               size_t num_samples,
               StepReport* report);
  ~SliceTrainer() { pipeline_.SetMakeRoom(nullptr); }
  SliceTrainer(const SliceTrainer&) = delete;
  SliceTrainer& operator=(const SliceTrainer&) = delete;

  // While another thread collects answers, in the phase "rollout": trains until
  // `is_collected`, which it may notice late, by a micro-batch or a few
  // milliseconds.
  absl::Status TrainAhead(const std::function<bool()>& is_collected);

  // Trains the remaining micro-batches, in the phases "scoring" and "training".
  // All answers must have been collected.
  absl::Status TrainRest();

  // Returns the number of micro-batches that contributed to the gradient, which
  // is their sum: micro-batches with a token for any term.
  int64_t num_trained() const { return num_trained_; }
  // Returns the losses of these micro-batches.
  ObjectiveAccumulator& objective() { return objective_; }

 private:
  struct MicroBatch {
    size_t begin = 0;  // its samples
    size_t end = 0;
    bool is_done = false;
    bool has_planned_rollouts = false;       // in ahead_
    std::optional<MicroBatchResult> result;  // until its turn
    int64_t held_bytes = 0;                  // of gradient_memory_
  };

  static std::vector<MicroBatch> Group(size_t num_samples, size_t size);
  // Returns whether the samples of a micro-batch are all at least in `state`.
  bool IsAt(const MicroBatch& micro_batch, SampleState state) const;
  // Returns the first micro-batch that can be trained now: it is scored, and
  // either it is its turn or its gradient fits into memory; null if there is
  // none.
  MicroBatch* FindTrainable();
  absl::Status Train(MicroBatch& micro_batch);
  // Takes the samples that have a token for any term.
  absl::StatusOr<std::vector<ScoredSample>> Take(const MicroBatch& micro_batch);
  // Adds the results whose turn it is.
  void AddInTurn();
  // Runs one forward pass over known tokens. False if there is none.
  bool AdvanceForward();

  const BatchTrainerParts& parts_;
  SamplePipeline& pipeline_;
  HeadWorkspace& workspace_;
  StepReport* const report_;
  const int64_t gradient_bytes_;  // of a micro-batch
  const PassLimits limits_;
  std::vector<MicroBatch> micro_batches_;
  ByteBudget gradient_memory_;  // of results out of turn
  ByteBudget pass_memory_;      // of ahead_
  ForwardAhead ahead_;
  size_t turn_ = 0;  // the first micro-batch that is not in the sum
  int64_t num_trained_ = 0;
  ObjectiveAccumulator objective_;
};

}  // namespace dapd
