// BatchTrainer: one rank's part of every optimizer step. All ranks run the same
// calls in the same order (SPMD); each answers, scores and trains the
// micro-batches of its slice of the batch, and the gradients of all are added
// up, so that every rank takes the same step.
//
// What only rank 0 does (data order, evaluation, files) is trainer_loop.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/views.h"
#include "common/model/weights.h"
#include "common/objective/head_workspace.h"
#include "common/objective/terms.h"
#include "common/training/gradient_sum.h"
#include "common/training/policy.h"
#include "services/trainer/rollout_client.h"
#include "services/trainer/sample_pipeline.h"
#include "services/trainer/step_plan.h"
#include "services/trainer/step_report.h"
#include "services/trainer/teacher_client.h"

namespace dapd {

// All referenced objects must outlive the trainer.
struct BatchTrainerParts {
  const Config& config;
  std::shared_ptr<const ModelWeights> weights;
  const Tokenizer& tokenizer;
  const ViewBuilder& views;
  const std::vector<Term>& terms;
  const Dataset& data;
  RolloutClient& rollouts;
  TeacherClient& teachers;
  Collective& collective;
  Policy& policy;  // the same on all ranks
  // "rollout", "scoring", "training", "publishing".
  std::function<void(const std::string& phase)> on_phase;
  // So many of this rank's answers or micro-batches of the phase are done.
  std::function<void(int64_t done, int64_t total)> on_progress;
};

// Called at rank 0 with each answer of the batch that was not recalled.
using OnAnswer = std::function<absl::Status(
    int64_t sample, const Problem& problem, const RolloutResult& result)>;

// Not thread-safe: owned by the compute thread.
class BatchTrainer {
 public:
  explicit BatchTrainer(BatchTrainerParts parts);

  // Gives the workers the policy to start with.
  absl::Status Start();

  // Answers the slice, and sends it to be scored. At rank 0 the answers of the
  // whole batch, in its order; elsewhere nothing.
  absl::StatusOr<std::vector<RolloutRecord>> Sample(const StepPlan& plan,
                                                    const OnAnswer& on_answer,
                                                    StepReport* report);

  // Accumulates the slice's gradient, adds up all ranks', takes the step and
  // publishes it. `report` gets the seconds of each phase, and at rank 0 the
  // objective and the counts of the whole batch. DATA_LOSS if the ranks end in
  // different weights.
  absl::Status Train(StepReport* report);

  // The rows of the data that step `step` (from 1) trains, in order.
  std::vector<int64_t> BatchRows(int64_t step) const;

  SamplePipeline& pipeline() { return pipeline_; }
  // Of the adapter that the workers serve.
  const std::string& live_digest() const { return live_digest_; }

 private:
  absl::Status ShareAnswers(const std::vector<int64_t>& rows,
                            const OnAnswer& on_answer,
                            std::vector<RolloutRecord>* records);
  absl::Status AccumulateSlice(StepReport* report);
  absl::Status CompareRanks(StepReport* report);
  absl::Status PublishLive();
  absl::Status PublishSnapshot();

  BatchTrainerParts parts_;
  SamplePipeline pipeline_;
  std::unique_ptr<GradientSum> gradient_sum_;
  HeadWorkspace head_workspace_;
  std::vector<int32_t> probe_ids_;
  std::string live_digest_;
  uint64_t payload_bytes_before_ = 0;  // of this step
  int64_t scored_tokens_before_ = 0;
  TeacherCost teacher_cost_before_;
  int64_t slice_begin_ = 0;             // its first sample's place in the batch
  std::vector<RolloutRecord> slice_;    // this rank's answers
  std::vector<BatchAnswer> to_report_;  // those that rank 0 does not know yet
};

}  // namespace dapd
