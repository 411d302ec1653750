// The trainer: DAPD's loop over optimizer steps, strictly on-policy.
//
// For each step: sample the batch with the current adapter, score it with the
// frozen teachers, run the objective micro-batch by micro-batch, take one
// optimizer step, push the new adapter. Before and after training the held-out
// problems are evaluated. How each part works:
//   which problems          common/data/dataset.h (StepRows)
//   rollouts and scores     sample_pipeline.h
//   losses and gradients    common/objective/micro_batch.h
//   optimizer and snapshot  common/training/policy.h
//   what is written         run_recorder.h, checkpoint.h, ledger.h
//   when the disk refuses   disk_policy.h
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/views.h"
#include "common/model/weights.h"
#include "common/objective/terms.h"
#include "common/training/policy.h"
#include "services/trainer/checkpoint.h"
#include "services/trainer/disk_policy.h"
#include "services/trainer/ledger.h"
#include "services/trainer/rollout_client.h"
#include "services/trainer/run_recorder.h"
#include "services/trainer/sample_pipeline.h"
#include "services/trainer/teacher_client.h"

namespace dapd {

// All referenced objects must outlive the loop.
struct TrainerParts {
  const Config& config;
  RunIdentity identity;
  std::shared_ptr<const ModelWeights> weights;
  Policy& policy;  // fresh, or where a checkpoint left it
  const Tokenizer& tokenizer;
  const ViewBuilder& views;
  std::vector<Term> terms;
  const Dataset& data;
  const Dataset& held_out;  // empty: no evaluation
  RolloutClient& rollouts;
  TeacherClient& teachers;
  RunRecorder& recorder;
  Ledger& ledger;
  TrainerMetrics& metrics;
  // Blocks for at most the given time; true once the run is to stop.
  std::function<bool(absl::Duration)> wait_for_stop;
};

// Not thread-safe: owned by the compute thread.
class TrainerLoop {
 public:
  explicit TrainerLoop(TrainerParts parts);

  // Runs to trainer.steps. CANCELLED once the clients were shut down; the
  // newest adapter and a checkpoint of the last whole step are then written.
  // Other errors are those of the clients (UNAVAILABLE, ...), of the disk
  // where checkpoint.on_write_error says so, and DATA_LOSS for a gradient that
  // is not finite. Whatever ends a run, the next one with the same
  // configuration goes on behind the newest checkpoint, to the same result.
  absl::Status Run();

 private:
  absl::Status RunSteps();
  absl::Status EvaluateHeldOut(const std::string& when);
  absl::Status RunStep();
  std::vector<PipelineInput> StepInputs(int64_t step) const;
  absl::StatusOr<std::vector<RolloutRecord>> Sample(StepReport& report);
  absl::Status TrainBatch(const std::vector<RolloutRecord>& records,
                          StepReport& report);
  absl::Status PublishLive();
  absl::Status PublishSnapshot();
  absl::Status SaveCheckpointNow();
  absl::Status SaveNewest();

  TrainerParts parts_;
  Policy& policy_;
  DiskPolicy disk_;
  SamplePipeline pipeline_;
  std::vector<int32_t> probe_ids_;
  std::string live_digest_;    // of the adapter that the workers serve
  int64_t saved_version_ = 0;  // of the newest checkpoint
};

}  // namespace dapd
