// SamplePipeline: turns problems into scored samples with the workers' help.
//
//   Submit           sends every problem to the rollout workers; may be called
//                    while the previous batch is still scored
//   Start            sends the views that need no answer to the teachers
//   CollectRollouts  hands each answer to the grader, if the user has one, and
//                    goes on; as soon as all answers of a group
//                    (answer_rules.h) and their grades are there, sends the
//                    other views of its samples to the teachers, which got the
//                    rollouts' tokens while they were sampled
//   TakeScored(i)    hands over sample i once all its teacher scores are there
//
// Results are placed by sample index, so they depend neither on the order of
// arrival nor on the number of workers and retries. CollectRollouts may run on
// a thread of its own while the compute thread, which makes all other calls,
// calls StateOf, AcceptScores and TakeScored.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
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
#include "common/grader/grading_desk.h"
#include "common/objective/micro_batch.h"
#include "common/objective/teacher_heads.h"
#include "common/objective/upload_scores.h"
#include "common/tensor/aten.h"
#include "services/trainer/step/answer_rules.h"
#include "services/trainer/step/rollout_record.h"
#include "services/trainer/step/score_plan.h"
#include "services/trainer/workers/open_answers.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

// One problem to be answered.
struct PipelineInput {
  const Problem* problem = nullptr;  // must outlive the batch
  SamplingKey key;                   // of attempt 0
  // Recalled answers, by attempt.
  std::map<int64_t, const RolloutResult*> known = {};
};

// The answer that a rollout task samples.
struct TaskTarget {
  size_t input = 0;  // its index
  int64_t attempt = 0;
};

// A batch whose problems were sent to the rollout workers.
struct SubmittedBatch {
  std::vector<PipelineInput> inputs;
  SamplingParams sampling;
  AnswerRules rules;
  std::map<uint64_t, TaskTarget> pending;            // by rollout task
  std::map<uint64_t, std::vector<int32_t>> prompts;  // of attempt 0's tasks
};

// Gets each new answer to input `index` before it has any effect; an error ends
// the batch.
using OnAccepted = std::function<absl::Status(
    size_t index, int64_t attempt, const RolloutResult& result)>;
// Gets each answer with its new grade, also before that has any effect.
using OnGraded = OnAccepted;
// Returns the grade of a new answer if it is known.
using KnownGrade = std::function<std::optional<GraderResult>(
    size_t index, int64_t attempt, const RolloutResult& result)>;

// The state of a sample. Samples that no term trains wait for no scores.
enum class SampleState {
  kSampled,      // an answer of its group is missing
  kAnswered,     // scores are missing
  kScored,       // TakeScored does not block
  kUntrainable,  // no term scores any of its tokens
  kLeftOut,      // no answer may stand in the reference's place
};

// Seconds that teachers computed.
struct TeacherCost {
  double after = 0.0;  // once an answer's last token was there
  double ahead = 0.0;  // before: prefixes, and views without the answer
};

struct PipelineOptions {
  ScoreQuestions scores;
  RecordOptions records;
  at::Device device = at::kCPU;
  // The heads of the further teachers that the passes or the rows name; must
  // outlive the pipeline. Null: there are none.
  const TeacherHeads* heads = nullptr;
  // Grades the answers; null: the built-in grader does. Must outlive the
  // pipeline, which alone uses it.
  GradingDesk* grader = nullptr;
  // The teachers get an answer's new tokens after each so many tokens; 0:
  // never.
  int64_t teacher_prefix_stride = 0;
  // PrefixOf grows after each so many tokens of an answer; 0: it stays empty.
  int64_t forward_prefix_stride = 0;
  // Called as answers arrive, from CollectRollouts; may be empty.
  std::function<void(int64_t done, int64_t total)> on_progress;
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

  // Sends the tasks for the answers that `rules` want at first, except the
  // known answers. The policy that the rollout workers were given last samples
  // them, after the sampler's prompt or the prompt that `prompt` makes of a
  // problem. The inputs are whole groups. All answers to the previous batch
  // must have been collected.
  using Prompt =
      std::function<absl::StatusOr<std::vector<int32_t>>(const Problem&)>;
  absl::StatusOr<SubmittedBatch> Submit(std::vector<PipelineInput> inputs,
                                        const SamplingParams& sampling,
                                        const AnswerRules& rules,
                                        const Prompt& prompt = nullptr);

  // Makes `batch` the subject of all calls below. All samples of the previous
  // batch must have been taken. `at_base`: the sets whose weights equal the
  // base now; one teacher pass then serves all of them. With `with_scores`
  // false only answers are collected.
  absl::Status Start(SubmittedBatch batch,
                     std::set<WeightSet> at_base,
                     bool with_scores);

  // Blocks until all needed answers and their grades are there; returns records
  // in the order of the inputs. Known answers with a grade are not graded
  // again.
  absl::StatusOr<std::vector<RolloutRecord>> CollectRollouts(
      const OnAccepted& on_accepted = nullptr,
      const OnGraded& on_graded = nullptr,
      const KnownGrade& known_grade = nullptr);
  // Ends CollectRollouts with CANCELLED; the batch can no longer be used.
  // Callable from any thread.
  void StopCollecting() { stop_collecting_ = true; }

  SampleState StateOf(size_t index) const;
  // Returns the known views, until TakeScored: the views that need no rollout,
  // and all views once the answer is there. Unknown views are empty.
  Views KnownViews(size_t index) const;
  // Returns the known prefix of none_rollout while its answer is sampled; empty
  // once the answer is there.
  std::vector<int32_t> PrefixOf(size_t index) const;
  // The problem of sample `index`.
  const Problem& ProblemOf(size_t index) const;
  // Sets the function that frees memory for scores on a full device from now
  // on; null: there is none.
  void SetMakeRoom(MakeRoom make_room) { make_room_ = std::move(make_room); }
  // Takes the scores that are there; waits up to `timeout` for the first.
  absl::Status AcceptScores(absl::Duration timeout);

  // The rules of the batch that was started.
  const AnswerRules& rules() const { return rules_; }
  // The maker of the records that CollectRollouts returns.
  const RecordMaker& record_maker() const { return record_maker_; }

  // Blocks until sample `index`, which must be trained, is scored. Must be
  // called once for each sample. Views without a token to score have no scores.
  absl::StatusOr<ScoredSample> TakeScored(size_t index);

  // Payload bytes of the teacher results so far.
  uint64_t payload_bytes() const { return payload_bytes_; }
  // The teachers' seconds for the results so far.
  const TeacherCost& teacher_cost() const { return teacher_cost_; }
  // Returns the number of tokens that the teachers scored so far.
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
    ScoreSource source;
    bool known_at_start = false;
  };

  // Returns the tasks of the plan for a problem, with ids.
  std::vector<ScoreTask> PlanScores(bool known_at_start,
                                    const Problem& problem);
  // Sends `tasks` with the tokens of the sample's views, without the views that
  // have no token to score.
  void SubmitScores(size_t index,
                    bool known_at_start,
                    std::vector<ScoreTask> tasks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends one answer's task to the rollout workers; returns its id.
  uint64_t SubmitAttempt(const PipelineInput& input,
                         int64_t attempt,
                         const SamplingParams& sampling,
                         std::vector<int32_t> prompt_ids);
  // Takes the wanted answers of an input that are known, and sends tasks for
  // the others.
  absl::Status WantMore(const PipelineInput& input,
                        size_t index,
                        AnswersByAttempt* answers);
  absl::Status AcceptRollout(size_t index,
                             const RolloutRecord& record,
                             const SampledAnswer& rollout);
  // Returns whether all answers in `answers` have the grades that they need.
  bool AreGraded(const AnswersByAttempt& answers) const;
  // Hands the answers without a grade to the grader, unless it has them or
  // their grades are known.
  absl::Status AskGrades(const PipelineInput& input,
                         size_t index,
                         const KnownGrade& known_grade,
                         AnswersByAttempt* answers);
  absl::Status AcceptScore(const ScoreResult& result);

  RolloutClient& rollouts_;
  TeacherClient& teachers_;
  const ViewBuilder& views_;
  PipelineOptions options_;
  const RecordMaker record_maker_;

  ScorePlan plan_;  // of the batch that was started
  bool with_scores_ = true;
  AnswerRules rules_;        // of the batch that was started
  SamplingParams sampling_;  // of the batch that was started
  MakeRoom make_room_;
  OpenAnswers open_answers_;                         // of attempt 0
  std::map<uint64_t, TaskTarget> pending_rollouts_;  // of CollectRollouts
  std::map<uint64_t, TaskTarget> pending_grades_;    // by the grader's ticket
  // CollectRollouts takes ids, too, for answers that are wanted later.
  std::atomic<uint64_t> next_id_ = 1;
  uint64_t payload_bytes_ = 0;
  TeacherCost teacher_cost_;
  std::atomic<bool> stop_collecting_ = false;
  // State that the thread of CollectRollouts and the compute thread share.
  mutable Mutex mutex_;
  CondVar submitted_;  // something joined pending_scores_
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, PendingScore> pending_scores_ ABSL_GUARDED_BY(mutex_);
  int64_t scored_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dapd
