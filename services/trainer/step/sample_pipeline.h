// SamplePipeline: turns problems into scored samples with the workers' help.
//
//   Submit           every problem goes to the rollout workers; may be called
//                    while the batch before is still scored
//   Start            the views that need no answer go to the teachers
//   CollectRollouts  as soon as all answers of a group (answer_rules.h) are
//                    there, the other views of its samples go to the teachers,
//                    which were told of the rollouts' tokens while they were
//                    sampled
//   TakeScored(i)    hands over sample i once all its teacher scores are there
//
// Results are placed by sample index, so the order of arrival, the number of
// workers and retries do not show. CollectRollouts may run on a thread of its
// own, while the compute thread, which owns everything else, calls StateOf,
// AcceptScores and TakeScored.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/data/dataset.h"
#include "common/data/view_builder.h"
#include "common/generation/sampling.h"
#include "common/objective/micro_batch.h"
#include "common/objective/upload_scores.h"
#include "services/trainer/step/answer_rules.h"
#include "services/trainer/step/pipeline_options.h"
#include "services/trainer/step/rollout_record.h"
#include "services/trainer/step/score_plan.h"
#include "services/trainer/workers/open_answers.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

// One problem to be answered.
struct PipelineInput {
  const Problem* problem = nullptr;  // must outlive the batch
  SamplingKey key;                   // of attempt 0
  // Its answers from a ledger, by attempt.
  std::map<int64_t, const RolloutResult*> known = {};
};

// What a rollout task samples.
struct RolloutTaskOf {
  size_t index = 0;  // of the input
  int64_t attempt = 0;
};

// A batch whose problems are with the rollout workers.
struct SubmittedBatch {
  std::vector<PipelineInput> inputs;
  SamplingParams sampling;
  AnswerRules rules;
  std::map<uint64_t, RolloutTaskOf> pending;         // by rollout task
  std::map<uint64_t, std::vector<int32_t>> prompts;  // of the same tasks
};

// Called with each answer of a batch, known ones left out, before anything
// follows from it; an error ends the batch.
using OnAccepted = std::function<absl::Status(const PipelineInput& input,
                                              size_t index,
                                              int64_t attempt,
                                              const RolloutResult& result)>;

// On its way; what no term trains has nothing to wait for.
enum class SampleState {
  kSampled,      // an answer of its group is missing
  kAnswered,     // scores of it are missing
  kScored,       // TakeScored does not block
  kUntrainable,  // no term has a token of it to score
  kLeftOut,      // nothing may stand in its reference's place
};

// Seconds that results cost the teachers.
struct TeacherCost {
  double after = 0.0;  // once an answer's last token was there
  double ahead = 0.0;  // before: prefixes, and views without the answer
};

class SamplePipeline {
 public:
  // All must outlive the pipeline.
  SamplePipeline(RolloutClient& rollouts,
                 TeacherClient& teachers,
                 const ViewBuilder& views,
                 const Tokenizer& tokenizer,
                 PipelineOptions options);
  ~SamplePipeline();

  // Has the answers that `rules` want at first and that are not known sampled
  // under the policy that the rollout workers were given last, after the
  // sampler's prompt or what `prompt` makes of a problem. The inputs are whole
  // groups. All answers to the batch before must have been collected.
  using Prompt =
      std::function<absl::StatusOr<std::vector<int32_t>>(const Problem&)>;
  absl::StatusOr<SubmittedBatch> Submit(std::vector<PipelineInput> inputs,
                                        const SamplingParams& sampling,
                                        const AnswerRules& rules,
                                        const Prompt& prompt = nullptr);

  // Everything below is about this batch from now on. All samples of the one
  // before must have been taken. `at_base`: the sets whose weights are those of
  // the base now; one teacher pass then serves all of them. With `with_scores`
  // false only answers are wanted.
  absl::Status Start(SubmittedBatch batch,
                     std::set<WeightSet> at_base,
                     bool with_scores);

  // Blocks for all answers that are needed; in the order of the inputs.
  absl::StatusOr<std::vector<RolloutRecord>> CollectRollouts(
      const OnAccepted& on_accepted = nullptr);
  // Ends CollectRollouts with CANCELLED. The batch is of no use then. From any
  // thread.
  void StopCollecting() { stop_collecting_ = true; }

  SampleState StateOf(size_t index) const;
  // The views as far as they are known, until TakeScored: those that need no
  // rollout, and with the answer all. The others are empty.
  Views KnownViews(size_t index) const;
  // The prefix of none_rollout, as far as an answer that is still sampled tells
  // it; nothing once it is there.
  std::vector<int32_t> PrefixOf(size_t index) const;
  // Of the batch that was started.
  const Problem& ProblemOf(size_t index) const;
  // How memory is found for scores on a device that is full, from now on; null:
  // it is not.
  void SetMakeRoom(MakeRoom make_room) { make_room_ = std::move(make_room); }
  // Takes in the scores that are there; waits up to `timeout` for the first.
  absl::Status AcceptScores(absl::Duration timeout);

  // What it makes its records with.
  const RecordMaker& record_maker() const { return record_maker_; }

  // Blocks for sample `index`, which must be trained; once each. Views without
  // a token to score have no scores.
  absl::StatusOr<ScoredSample> TakeScored(size_t index);

  // Payload bytes of the teacher results so far.
  uint64_t payload_bytes() const { return payload_bytes_; }
  // What these cost the teachers.
  const TeacherCost& teacher_cost() const { return teacher_cost_; }
  // Tokens that the teachers scored so far.
  int64_t scored_tokens() const {
    MutexLock lock(&mutex_);
    return scored_tokens_;
  }

 private:
  struct Entry {
    PipelineInput input;
    uint64_t rollout_id = 0;  // of attempt 0's task; 0: it is known
    Views views;
    std::vector<ScoreTask> later_tasks;  // without tokens until it is answered
    std::map<TeacherPass, TeacherScores> scores;
    std::vector<float> sampler_logprobs;  // of its answer's scored tokens
    size_t scores_missing = 0;
    bool is_answered = false;
    bool is_trained = false;
    bool is_left_out = false;
  };
  struct PendingScore {
    size_t index = 0;
    WeightSet weights = WeightSet::kBase;
    bool known_at_start = false;
  };

  // The tasks of the plan, with ids.
  std::vector<ScoreTask> PlanScores(bool known_at_start);
  // Sends them with the tokens of the sample's views, but for views that have
  // none to score.
  void SubmitScores(size_t index,
                    bool known_at_start,
                    std::vector<ScoreTask> tasks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends one answer's task to the rollout workers; returns its id.
  uint64_t SubmitAttempt(const PipelineInput& input,
                         int64_t attempt,
                         const SamplingParams& sampling,
                         std::vector<int32_t> prompt_ids);
  // Takes over the known answers of an input that are wanted, and has the
  // others sampled.
  absl::Status WantMore(const PipelineInput& input,
                        size_t index,
                        AnswersByAttempt* answers);
  absl::Status AcceptRollout(size_t index,
                             const RolloutRecord& record,
                             const RolloutResult& rollout);
  absl::StatusOr<RolloutResult> NextRollout();
  absl::Status AcceptScore(const ScoreResult& result);

  RolloutClient& rollouts_;
  TeacherClient& teachers_;
  const ViewBuilder& views_;
  PipelineOptions options_;
  const RecordMaker record_maker_;

  ScorePlan plan_;  // of the batch that was started
  bool with_scores_ = true;
  AnswerRules rules_;        // of the batch that was started
  SamplingParams sampling_;  // of the same
  MakeRoom make_room_;
  OpenAnswers open_answers_;                            // of attempt 0
  std::map<uint64_t, RolloutTaskOf> pending_rollouts_;  // of CollectRollouts
  // Also taken by CollectRollouts, for answers that are wanted later.
  std::atomic<uint64_t> next_id_ = 1;
  uint64_t payload_bytes_ = 0;
  TeacherCost teacher_cost_;
  std::atomic<bool> stop_collecting_ = false;
  // What the thread of CollectRollouts and the compute thread share.
  mutable Mutex mutex_;
  CondVar submitted_;  // something joined pending_scores_
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, PendingScore> pending_scores_ ABSL_GUARDED_BY(mutex_);
  int64_t scored_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dapd
