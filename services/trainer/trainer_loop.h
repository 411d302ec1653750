// TrainerLoop: rank 0's loop over optimizer steps, which also evaluates,
// records and saves; and RunOtherRank, the loop of the other ranks.
//
// For each step: sample the batch with the current adapter (with
// rollout.max_staleness, with the previous adapter), score it with the frozen
// teachers, run the objective micro-batch by micro-batch, take one optimizer
// step, push the new adapter. Before and after training, and every
// evaluation.interval steps, the held-out problems are evaluated with the
// current adapter. How each part works:
//   a step, on every rank   batch_trainer.h
//   which problems          common/data/epoch_order.h (StepRows)
//   rollouts and scores     sample_pipeline.h
//   losses and gradients    common/objective/micro_batch.h
//   optimizer and snapshot  common/training/policy.h
//   what is written         run_recorder.h, checkpoint.h, ledger.h
//   when the disk refuses   full_disk_rule.h
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/data/dataset.h"
#include "common/training/policy.h"
#include "services/trainer/evaluation.h"
#include "services/trainer/record/checkpoint.h"
#include "services/trainer/record/full_disk_rule.h"
#include "services/trainer/record/ledger.h"
#include "services/trainer/record/run_recorder.h"
#include "services/trainer/step/batch_trainer.h"

namespace dapd {

// All referenced objects must outlive the loop.
struct TrainerParts {
  BatchTrainerParts batch;
  RunIdentity identity;
  const Dataset& held_out;  // empty: no evaluation
  RunRecorder& recorder;
  Ledger& ledger;
  TrainerMetrics& metrics;
  TrainerStatus& status;
  // Blocks for at most the given time; true once the run is to stop.
  std::function<bool(absl::Duration)> wait_for_stop;
  // Called once the run folder holds a checkpoint of this step and all that
  // belongs to it; for the last step once more when the run is finished. Must
  // be quick.
  std::function<void(int64_t step)> on_saved = [](int64_t /*step*/) {};
};

// Not thread-safe: owned by the compute thread.
class TrainerLoop {
 public:
  explicit TrainerLoop(TrainerParts parts);

  // Runs to trainer.steps. Returns CANCELLED once the clients were shut down,
  // or if another rank is gone and wait_for_stop says that the run is to stop;
  // UNAVAILABLE without workers; ABORTED without another rank. After these the
  // newest adapter and a checkpoint of the last whole step are written, unless
  // the records of that step are incomplete. Other errors come from the
  // clients, from this rank's device (ABORTED) or from the disk, if
  // checkpoint.on_write_error says so; DATA_LOSS for a loss or a gradient that
  // is not finite. Whatever ends a run, the next one with the same
  // configuration goes on after the newest checkpoint, to the same result.
  absl::Status Run();

 private:
  absl::Status RunSteps();
  // Returns whether an end with `status` came from outside. The policy of this
  // rank is then the result of the last whole step.
  bool IsPolicyWholeAfter(const absl::Status& status) const;
  absl::Status EvaluateHeldOut(const std::string& when);
  // Returns the grades of the live policy's held-out answers in the ledger.
  HeldOutGrades KeptGrades();
  // Evaluates the last step if evaluation.interval says so, unless an earlier
  // attempt evaluated the same adapter, and keeps the best adapter.
  absl::Status EvaluateWithin();
  // With evaluation.interval: if `when`, the evaluation of the live adapter, is
  // the best so far, writes the live adapter to the run folder's adapter-best/.
  // A checkpoint of its step exists from then on.
  absl::Status KeepBest(const std::string& when);
  absl::Status RunStep();
  StepPlan PlanStep(int64_t step, const PolicyUpdate& policy);
  absl::StatusOr<std::vector<RolloutRecord>> Sample(StepReport* report);
  absl::Status Record(const std::vector<RolloutRecord>& records,
                      const StepReport& report);
  absl::Status SaveCheckpointNow();
  absl::Status SaveNewest();
  // Writes the live adapter to the run folder's adapter/.
  absl::Status ExportAdapter();
  // Returns the model card of the live adapter, with all evaluations so far.
  std::string Card() const;

  TrainerParts parts_;
  Policy& policy_;
  FullDiskRule disk_;
  BatchTrainer batch_;
  int64_t saved_version_ = 0;      // of the newest checkpoint
  int64_t recorded_version_ = 0;   // of the last step that is in all files
  int64_t exported_version_ = -1;  // of adapter/, by this process
};

// Runs the loop of a rank other than 0, which takes part in every step that
// rank 0 plans.
absl::Status RunOtherRank(BatchTrainerParts parts);

}  // namespace dapd
