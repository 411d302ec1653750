#include "services/trainer/step/sample_pipeline.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/time/time.h"

#include "common/base/status_macros.h"
#include "common/objective/upload_scores.h"

namespace dapd {
namespace {

// Returns whether a task for this answer is pending.
bool IsPending(const std::map<uint64_t, TaskTarget>& pending,
               size_t index,
               int64_t attempt) {
  return std::ranges::any_of(pending, [&](const auto& entry) {
    return entry.second.input == index && entry.second.attempt == attempt;
  });
}

// How soon CollectRollouts notices StopCollecting.
constexpr absl::Duration kStopTick = absl::Milliseconds(100);
// How soon it notices a grade while it waits for answers.
constexpr absl::Duration kGradeTick = absl::Milliseconds(10);

// Returns whether anything reads the grade of an answer.
bool NeedsGrade(const AnswerRules& rules, int64_t attempt) {
  return rules.needs_grades &&
         (attempt == 0 || rules.source == ReferenceSource::kVerified);
}

}  // namespace

SamplePipeline::SamplePipeline(RolloutClient& rollouts,
                               TeacherClient& teachers,
                               const ViewBuilder& views,
                               const Tokenizer& tokenizer,
                               PipelineOptions options)
    : rollouts_(rollouts),
      teachers_(teachers),
      views_(views),
      options_(std::move(options)),
      record_maker_(views, tokenizer, options_.records),
      open_answers_(views,
                    teachers,
                    {.teachers = options_.teacher_prefix_stride,
                     .trainer = options_.forward_prefix_stride}) {
  if (options_.teacher_prefix_stride == 0 &&
      options_.forward_prefix_stride == 0) {
    return;
  }
  rollouts_.Listen([this](uint64_t id, const std::vector<int32_t>& ids) {
    open_answers_.OnTokens(id, ids);
  });
}

SamplePipeline::~SamplePipeline() { rollouts_.Listen(nullptr); }

uint64_t SamplePipeline::SubmitAttempt(const PipelineInput& input,
                                       int64_t attempt,
                                       const SamplingParams& sampling,
                                       std::vector<int32_t> prompt_ids) {
  RolloutTask task;
  task.id = next_id_++;
  task.request.prompt_ids = std::move(prompt_ids);
  task.request.sampling = sampling;
  task.request.key = KeyOfAttempt(input.key, attempt);
  const uint64_t id = task.id;
  rollouts_.Submit(std::move(task));
  return id;
}

absl::StatusOr<SubmittedBatch> SamplePipeline::Submit(
    std::vector<PipelineInput> inputs,
    const SamplingParams& sampling,
    const AnswerRules& rules,
    const Prompt& prompt) {
  SubmittedBatch batch{std::move(inputs), sampling, rules};
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    const PipelineInput& input = batch.inputs[i];
    for (const int64_t attempt : WantedAttempts(rules, {})) {
      if (input.known.contains(attempt)) continue;
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       prompt ? prompt(*input.problem)
                              : views_.RolloutPrompt(input.problem->source()));
      const uint64_t id = SubmitAttempt(input, attempt, sampling, ids);
      batch.pending[id] = {i, attempt};
      if (attempt == 0) batch.prompts[id] = ids;
    }
  }
  return batch;
}

absl::Status SamplePipeline::Start(SubmittedBatch batch,
                                   std::set<WeightSet> at_base,
                                   bool with_scores) {
  MutexLock lock(&mutex_);
  stop_collecting_ = false;
  plan_ = {options_.scores, std::move(at_base), batch.rules.source};
  with_scores_ = with_scores;
  rules_ = batch.rules;
  sampling_ = batch.sampling;
  // Drops the scores that an untrainable sample of the last batch still waits
  // for.
  pending_scores_.clear();
  open_answers_.CloseAll();
  pending_rollouts_ = std::move(batch.pending);
  entries_.clear();
  entries_.resize(batch.inputs.size());
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    entries_[i].input = batch.inputs[i];
  }
  for (const auto& [id, task] : pending_rollouts_) {
    if (task.attempt == 0) entries_[task.input].rollout_id = id;
  }
  if (!with_scores_) return absl::OkStatus();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Problem& problem = *entries_[i].input.problem;
    if (rules_.source == ReferenceSource::kGiven && rules_.trains_references) {
      ASSIGN_OR_RETURN(
          entries_[i].views,
          views_.BuildReferenceViews(problem.source(), problem.solution));
    }
    SubmitScores(i,
                 /*known_at_start=*/true,
                 PlanScores(/*known_at_start=*/true, problem));
    if (!rules_.needs_answers) {
      entries_[i].is_answered = entries_[i].is_trained = true;
      continue;
    }
    entries_[i].later_tasks = PlanScores(/*known_at_start=*/false, problem);
  }
  for (auto& [id, prompt] : batch.prompts) {
    const Entry& entry = entries_[pending_rollouts_.at(id).input];
    std::vector<ScoreTask> tasks;
    if (options_.teacher_prefix_stride > 0) {
      tasks = plan_.Tellable(entry.later_tasks);
    }
    open_answers_.Open(id,
                       {.prompt = std::move(prompt),
                        .problem = entry.input.problem->problem,
                        .reference = entry.input.problem->solution,
                        .material = entry.input.problem->material,
                        .tasks = std::move(tasks)});
  }
  return absl::OkStatus();
}

std::vector<ScoreTask> SamplePipeline::PlanScores(bool known_at_start,
                                                  const Problem& problem) {
  std::vector<ScoreTask> tasks = plan_.Tasks(known_at_start, problem.teacher);
  for (ScoreTask& task : tasks) task.id = next_id_++;
  return tasks;
}

void SamplePipeline::SubmitScores(size_t index,
                                  bool known_at_start,
                                  std::vector<ScoreTask> tasks) {
  Entry& entry = entries_[index];
  for (ScoreTask& task : tasks) {
    std::erase_if(task.views, [&](const auto& named) {
      return entry.views[static_cast<size_t>(named.first)].scored_count == 0;
    });
    if (task.views.empty()) {
      teachers_.WithdrawPrefix(task.id);
      continue;
    }
    for (auto& [name, view] : task.views) {
      view = entry.views[static_cast<size_t>(name)];
      scored_tokens_ += view.scored_count;
    }
    pending_scores_[task.id] = {
        index, {task.teacher, task.weights}, known_at_start};
    ++entry.scores_missing;
    teachers_.Submit(std::move(task));
  }
  submitted_.NotifyAll();
}

absl::Status SamplePipeline::WantMore(const PipelineInput& input,
                                      size_t index,
                                      AnswersByAttempt* answers) {
  bool took_one = true;
  while (took_one) {
    took_one = false;
    for (const int64_t attempt : WantedAttempts(rules_, *answers)) {
      if (const auto known = input.known.find(attempt);
          known != input.known.end()) {
        (*answers)[attempt] = *known->second;
        took_one = true;
        continue;
      }
      if (IsPending(pending_rollouts_, index, attempt)) continue;
      ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                       views_.RolloutPrompt(input.problem->source()));
      pending_rollouts_[SubmitAttempt(
          input, attempt, sampling_, std::move(prompt))] = {index, attempt};
    }
  }
  return absl::OkStatus();
}

bool SamplePipeline::AreGraded(const AnswersByAttempt& answers) const {
  return options_.grader == nullptr ||
         std::ranges::all_of(answers, [this](const auto& answer) {
           return answer.second.grade.has_value() ||
                  !NeedsGrade(rules_, answer.first);
         });
}

absl::Status SamplePipeline::AskGrades(const PipelineInput& input,
                                       size_t index,
                                       const KnownGrade& known_grade,
                                       AnswersByAttempt* answers) {
  if (options_.grader == nullptr) return absl::OkStatus();
  for (auto& [attempt, answer] : *answers) {
    if (answer.grade.has_value() || !NeedsGrade(rules_, attempt) ||
        IsPending(pending_grades_, index, attempt)) {
      continue;
    }
    if (known_grade) answer.grade = known_grade(index, attempt, answer);
    if (answer.grade.has_value()) continue;
    ASSIGN_OR_RETURN(
        GraderQuestion question,
        record_maker_.MakeQuestion(*input.problem, attempt, answer));
    pending_grades_[options_.grader->Submit(std::move(question))] = {index,
                                                                     attempt};
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RolloutRecord>> SamplePipeline::CollectRollouts(
    const OnAccepted& on_accepted,
    const OnGraded& on_graded,
    const KnownGrade& known_grade) {
  // An earlier batch may have ended before its grades were there.
  pending_grades_.clear();
  if (options_.grader != nullptr) options_.grader->Forget();
  // Only the compute thread's Start changes the inputs.
  std::vector<PipelineInput> inputs;
  {
    MutexLock lock(&mutex_);
    for (const Entry& entry : entries_) inputs.push_back(entry.input);
  }
  std::vector<AnswersByAttempt> answers(inputs.size());
  std::vector<RolloutRecord> records(inputs.size());
  const auto is_complete = [&](size_t index) {
    return WantedAttempts(rules_, answers[index]).empty() &&
           AreGraded(answers[index]);
  };
  const auto group_size = static_cast<size_t>(rules_.group_size);
  // Makes the records of input `index`'s group once all its answers are there,
  // and sends its views.
  const auto finish_group = [&](size_t index) -> absl::Status {
    const size_t begin = index / group_size * group_size;
    for (size_t i = begin; i < begin + group_size; ++i) {
      if (!is_complete(i)) return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(
        std::vector<RolloutRecord> group,
        record_maker_.MakeRecords(*inputs[begin].problem,
                                  std::span(answers).subspan(begin, group_size),
                                  rules_));
    for (size_t i = 0; i < group_size; ++i) {
      if (rules_.needs_answers) {
        RETURN_IF_ERROR(
            AcceptRollout(begin + i, group[i], answers[begin + i].at(0)));
      }
      records[begin + i] = std::move(group[i]);
    }
    return absl::OkStatus();
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].known.empty()) continue;
    RETURN_IF_ERROR(WantMore(inputs[i], i, &answers[i]));
    RETURN_IF_ERROR(AskGrades(inputs[i], i, known_grade, &answers[i]));
  }
  for (size_t begin = 0; begin < inputs.size(); begin += group_size) {
    RETURN_IF_ERROR(finish_group(begin));
  }
  int64_t num_complete = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    num_complete += is_complete(i) ? 1 : 0;
  }
  // Called after each answer and each grade of input `index`.
  const auto advance = [&](size_t index) -> absl::Status {
    if (!is_complete(index)) return absl::OkStatus();
    RETURN_IF_ERROR(finish_group(index));
    ++num_complete;
    if (options_.on_progress) {
      options_.on_progress(num_complete, static_cast<int64_t>(inputs.size()));
    }
    return absl::OkStatus();
  };
  const auto take_grade = [&](GradedTicket graded) -> absl::Status {
    const auto pending = pending_grades_.find(graded.ticket);
    if (pending == pending_grades_.end()) return absl::OkStatus();
    const auto [index, attempt] = pending->second;
    pending_grades_.erase(pending);
    RolloutResult& answer = answers[index][attempt];
    answer.grade = std::move(graded.result);
    if (on_graded) RETURN_IF_ERROR(on_graded(index, attempt, answer));
    return advance(index);
  };
  const auto take_answer = [&](const RolloutResult& result) -> absl::Status {
    const auto pending = pending_rollouts_.find(result.id);
    if (pending == pending_rollouts_.end()) return absl::OkStatus();
    const auto [index, attempt] = pending->second;
    pending_rollouts_.erase(pending);
    if (on_accepted) RETURN_IF_ERROR(on_accepted(index, attempt, result));
    answers[index][attempt] = result;
    RETURN_IF_ERROR(WantMore(inputs[index], index, &answers[index]));
    RETURN_IF_ERROR(
        AskGrades(inputs[index], index, known_grade, &answers[index]));
    return advance(index);
  };
  while (!pending_rollouts_.empty() || !pending_grades_.empty()) {
    if (stop_collecting_) {
      return absl::CancelledError("the batch was abandoned");
    }
    if (!pending_grades_.empty()) {
      ASSIGN_OR_RETURN(std::optional<GradedTicket> graded,
                       options_.grader->NextWithin(pending_rollouts_.empty()
                                                       ? kStopTick
                                                       : absl::ZeroDuration()));
      if (graded.has_value()) {
        RETURN_IF_ERROR(take_grade(*std::move(graded)));
        continue;
      }
      if (pending_rollouts_.empty()) continue;
    }
    ASSIGN_OR_RETURN(
        const std::optional<RolloutResult> result,
        rollouts_.NextWithin(pending_grades_.empty() ? kStopTick : kGradeTick));
    if (result.has_value()) RETURN_IF_ERROR(take_answer(*result));
  }
  return records;
}

absl::Status SamplePipeline::AcceptRollout(size_t index,
                                           const RolloutRecord& record,
                                           const SampledAnswer& rollout) {
  const Problem& problem = *record.problem;
  const bool is_trained = with_scores_ && record.is_trained;
  Views views;
  if (is_trained) {
    const Sample sample = {problem.id,
                           problem.problem,
                           problem.solution,
                           record.answer.ids,
                           record.reference_ids,
                           record.context,
                           problem.material};
    // Views that are known since Start are not built again.
    ASSIGN_OR_RETURN(views,
                     sample.reference_ids.empty() && rules_.trains_references
                         ? views_.Build(sample, KnownViews(index))
                         : views_.Build(sample));
    if (!rules_.trains_references) DropViews(Completion::kReference, &views);
  }
  MutexLock lock(&mutex_);
  Entry& entry = entries_[index];
  entry.is_answered = true;
  entry.is_trained = is_trained;
  entry.is_left_out = record.is_left_out;
  open_answers_.Close(entry.rollout_id, /*submitted=*/is_trained);
  if (is_trained) {
    // Unscored tokens stand at the answer's end.
    entry.sampler_logprobs = rollout.logprobs;
    entry.sampler_logprobs.resize(std::min(
        rollout.logprobs.size(),
        static_cast<size_t>(
            views[static_cast<size_t>(ViewName::kNoneRollout)].scored_count)));
    entry.views = std::move(views);
    SubmitScores(index, /*known_at_start=*/false, std::move(entry.later_tasks));
  }
  return absl::OkStatus();
}

absl::Status SamplePipeline::AcceptScore(const ScoreResult& result) {
  std::map<ViewName, TeacherScores> views;
  for (const auto& [view, tensors] : result.views) {
    views[view] = UploadScores(tensors, options_.device, make_room_);
  }
  MutexLock lock(&mutex_);
  const auto pending = pending_scores_.find(result.id);
  if (pending == pending_scores_.end()) return absl::OkStatus();
  const auto [index, source, known_at_start] = pending->second;
  pending_scores_.erase(pending);
  Entry& entry = entries_[index];
  if (!source.teacher.empty()) {
    for (auto& [view, scores] : views) {
      scores.head = options_.heads->Find(source.teacher);
    }
  }
  for (const TeacherPass& pass : options_.scores.passes) {
    const auto scores = views.find(pass.view);
    if (scores != views.end() &&
        plan_.SourceOf(pass, entry.input.problem->teacher) == source) {
      entry.scores[pass] = scores->second;
    }
  }
  --entry.scores_missing;
  payload_bytes_ += result.payload_bytes;
  (known_at_start ? teacher_cost_.ahead : teacher_cost_.after) +=
      result.compute_seconds;
  teacher_cost_.ahead += result.ahead_seconds;
  return absl::OkStatus();
}

absl::Status SamplePipeline::AcceptScores(absl::Duration timeout) {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (pending_scores_.empty()) submitted_.WaitFor(&mutex_, timeout);
      if (pending_scores_.empty()) return absl::OkStatus();
    }
    // Freed before the next result is taken: together the results of a step are
    // large.
    ASSIGN_OR_RETURN(const std::optional<ScoreResult> result,
                     teachers_.NextWithin(timeout));
    if (!result.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(AcceptScore(*result));
    timeout = absl::ZeroDuration();
  }
}

SampleState SamplePipeline::StateOf(size_t index) const {
  MutexLock lock(&mutex_);
  const Entry& entry = entries_[index];
  if (!entry.is_answered) return SampleState::kSampled;
  if (entry.is_left_out) return SampleState::kLeftOut;
  if (!entry.is_trained) return SampleState::kUntrainable;
  return entry.scores_missing > 0 ? SampleState::kAnswered
                                  : SampleState::kScored;
}

Views SamplePipeline::KnownViews(size_t index) const {
  MutexLock lock(&mutex_);
  return entries_[index].views;
}

std::vector<int32_t> SamplePipeline::PrefixOf(size_t index) const {
  MutexLock lock(&mutex_);
  return open_answers_.PrefixOf(entries_[index].rollout_id);
}

const Problem& SamplePipeline::ProblemOf(size_t index) const {
  MutexLock lock(&mutex_);
  return *entries_[index].input.problem;
}

absl::StatusOr<ScoredSample> SamplePipeline::TakeScored(size_t index) {
  while (StateOf(index) != SampleState::kScored) {
    ASSIGN_OR_RETURN(const ScoreResult result, teachers_.Next());
    RETURN_IF_ERROR(AcceptScore(result));
  }
  MutexLock lock(&mutex_);
  Entry& entry = entries_[index];
  return ScoredSample{entry.input.problem->id,
                      std::move(entry.views),
                      std::move(entry.scores),
                      std::move(entry.sampler_logprobs),
                      entry.input.problem->teacher};
}

}  // namespace dapd
