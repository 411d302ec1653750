// BatchTrainer: one rank's part of every optimizer step. All ranks run the same
// calls in the same order (SPMD). Each rank answers, scores and trains the
// micro-batches of its slice of the batch; the gradients of all ranks are
// summed, so that every rank takes the same step.
//
// The policy that samples step s, where v optimizer steps lead to policy v:
//   rollout.max_staleness 0   s - 1, which the step trains. The workers get
//                             policy s while step s computes it.
//   rollout.max_staleness 1   max(0, s - 2). Once all answers to step s are
//                             there, the workers get policy s - 1 and the
//                             problems of step s + 1, which they answer while
//                             step s is scored and trained.
//
// Rank 0's further duties (data order, evaluation, files) are in
// trainer_loop.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/data/epoch_order.h"
#include "common/objective/head_workspace.h"
#include "common/training/step_report.h"
#include "services/trainer/publish/policy_publisher.h"
#include "services/trainer/step/answer_exchange.h"
#include "services/trainer/step/batch_trainer_parts.h"
#include "services/trainer/step/rank_messages.h"
#include "services/trainer/step/sample_pipeline.h"
#include "services/trainer/step/slice_trainer.h"

namespace dapd {

// The functions and the ledger of a step that only rank 0 has.
struct StepLeader {
  // Returns the plan of step `step`, which `policy` samples, for all ranks; a
  // plan of step 0 if there is no such step.
  std::function<StepPlan(int64_t step, const PolicyUpdate& policy)> plan;
  LedgerOnDisk ledger;  // of the answers
};

// Not thread-safe: owned by the compute thread.
class BatchTrainer {
 public:
  // `leader`: at rank 0 only.
  BatchTrainer(BatchTrainerParts parts, std::optional<StepLeader> leader);

  // Gives the workers their first policies.
  absl::Status Start();

  // Sends the problems of the slice to the rollout workers, unless this was
  // done while the previous step was trained. Returns false if rank 0 planned
  // no step. The other ranks wait for rank 0's plan without a time limit;
  // meanwhile they contribute their layers to rank 0's evaluation.
  absl::StatusOr<bool> BeginStep();

  // Waits for the answers of the begun step, and sends them to the teachers.
  // Trains micro-batches that are scored before all answers are there
  // (trainer.train_while_sampling). With a lag, begins the next step, unless an
  // evaluation comes first. Returns the records of the whole batch, in its
  // order, on rank 0, and nothing on other ranks. Returns FAILED_PRECONDITION
  // for an answer that another policy gave.
  absl::StatusOr<std::vector<RolloutRecord>> Sample(StepReport* report);

  // Completes the slice's gradient, sums the gradients of all ranks, takes the
  // step and, without a lag, publishes it. If no sample of the step has tokens
  // to score and a target, there is no gradient, and the policy rests
  // (Policy::Rest) with a warning. `report` gets the seconds of each phase, and
  // at rank 0 the objective and the counts of the whole batch. Returns
  // DATA_LOSS if the ranks end with different weights.
  absl::Status Train(StepReport* report);

  // Returns the rows of the data that step `step` (from 1) trains, in order:
  // one for each sample, a group's samples (rollout.group_size) side by side.
  std::vector<int64_t> BatchRows(int64_t step);

  // Gives the rollout workers the live policy until the next step begins, for
  // answers outside of steps. No step may be open; none is after a step of
  // IsEvaluatedAfter.
  void ServeLive();

  // Returns whether an evaluation follows this step. With a lag, the next step
  // then begins after the evaluation, but the policy that samples it does not
  // change. Rank 0's configuration decides (StepPlan).
  bool IsEvaluatedAfter(int64_t step) const;

  SamplePipeline& pipeline() { return pipeline_; }
  // The digest of the live adapter.
  const std::string& live_digest() const {
    return publisher_.live()->adapter.digest;
  }

 private:
  // A step whose problems were sent to the rollout workers.
  struct OpenStep : SampledStep {
    SubmittedBatch batch;
  };

  bool HasLag() const { return parts_.config.rollout.max_staleness > 0; }
  absl::Status Begin(int64_t step, std::shared_ptr<const PolicyUpdate> policy);
  // Returns the samples of each rank, [ranks].
  std::vector<RankSlice> SamplesOfRanks(size_t batch_size) const;
  // Returns the samples of this rank.
  const RankSlice& OwnSlice(const SampledStep& step) const {
    return step.slices[static_cast<size_t>(parts_.collective.rank())];
  }
  absl::Status CollectSlice(const OpenStep& step);
  // Calls CollectSlice on a thread of its own, and trains meanwhile.
  absl::Status CollectAndTrain(const OpenStep& step);
  absl::Status WaitAndCollect(const OpenStep& step);
  // Mark the beginning and the end of a step in the timeline.
  void BeginTimeline();
  void EndTimeline();
  absl::Status FinishGradient(StepReport* report);
  // Gives the workers the new policy, and compares it with the new policy of
  // the other ranks.
  absl::Status Publish(PolicyUpdateWriter& writer, StepReport* report);
  absl::Status ServeLayers();
  // Adds the payload and the teachers' seconds of this step's scores.
  void CountScores(StepReport* report) const;

  BatchTrainerParts parts_;
  const std::optional<StepLeader> leader_;
  StepRows step_rows_;
  SamplePipeline pipeline_;
  AnswerExchange answers_;
  PolicyPublisher publisher_;
  HeadWorkspace head_workspace_;
  std::optional<OpenStep> open_;
  // The policy that samples the next step; null: the policy that the workers
  // serve.
  std::shared_ptr<const PolicyUpdate> held_;
  std::optional<SliceTrainer> slice_trainer_;  // of the step that is sampled
  uint64_t payload_bytes_before_ = 0;          // of this step
  int64_t scored_tokens_before_ = 0;
  TeacherCost teacher_cost_before_;
  std::vector<RolloutRecord> slice_;  // this rank's answers
  bool has_gradient_ = true;          // of this step, on any rank
  absl::Time step_began_;
};

}  // namespace dapd
