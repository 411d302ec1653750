#include "services/trainer/step/sample_pipeline.h"

#include <optional>
#include <utility>

#include "absl/time/time.h"

#include "common/base/status_macros.h"
#include "common/data/grade_answer.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// How soon CollectRollouts hears that it is to stop.
constexpr absl::Duration kStopTick = absl::Milliseconds(100);

TeacherScores ToScores(const std::map<std::string, HostTensor>& tensors,
                       at::Device device) {
  TeacherScores scores;
  for (const auto& [name, host] : tensors) {
    const at::Tensor tensor = ToTorch(host).to(device);
    if (name == "hidden") scores.hidden = tensor;
    if (name == "logits") scores.logits = tensor;
    if (name == "ids") scores.top_ids = tensor.to(at::kLong);
    if (name == "logprobs") scores.top_logprobs = tensor;
  }
  return scores;
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
      tokenizer_(tokenizer),
      options_(std::move(options)),
      streamer_(views,
                teachers,
                static_cast<size_t>(options_.teacher_prefix_stride)) {
  if (options_.teacher_prefix_stride == 0 &&
      options_.forward_prefix_stride == 0) {
    return;
  }
  rollouts_.Listen([this](uint64_t id, const std::vector<int32_t>& ids) {
    if (options_.teacher_prefix_stride > 0) streamer_.OnTokens(id, ids);
    if (options_.forward_prefix_stride > 0) KeepPrefix(id, ids);
  });
}

SamplePipeline::~SamplePipeline() { rollouts_.Listen(nullptr); }

absl::StatusOr<SubmittedBatch> SamplePipeline::Submit(
    std::vector<PipelineInput> inputs,
    const SamplingParams& sampling,
    const Prompt& prompt) {
  SubmittedBatch batch{std::move(inputs)};
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    const PipelineInput& input = batch.inputs[i];
    if (input.known != nullptr) continue;
    RolloutTask task;
    task.id = next_id_++;
    ASSIGN_OR_RETURN(task.request.prompt_ids,
                     prompt ? prompt(*input.problem)
                            : views_.RolloutPrompt(input.problem->problem));
    batch.prompts[task.id] = task.request.prompt_ids;
    task.request.sampling = sampling;
    task.request.key = input.key;
    batch.pending[task.id] = i;
    rollouts_.Submit(std::move(task));
  }
  return batch;
}

absl::Status SamplePipeline::Start(SubmittedBatch batch,
                                   std::set<WeightSet> at_base,
                                   bool with_scores) {
  MutexLock lock(&mutex_);
  stop_collecting_ = false;
  at_base_ = std::move(at_base);
  with_scores_ = with_scores;
  // What an untrainable sample of the last batch still waits for is dropped.
  pending_scores_.clear();
  streamer_.CloseAll();
  pending_rollouts_ = std::move(batch.pending);
  entries_.clear();
  entries_.resize(batch.inputs.size());
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    entries_[i].input = batch.inputs[i];
  }
  for (const auto& [id, index] : pending_rollouts_) {
    entries_[index].rollout_id = id;
  }
  prefixes_.clear();
  if (!with_scores_) return absl::OkStatus();
  for (auto& [id, prompt] : batch.prompts) {
    const size_t tokens = prompt.size();
    prefixes_[id] = {std::move(prompt), tokens};
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Problem& problem = *entries_[i].input.problem;
    ASSIGN_OR_RETURN(
        entries_[i].views,
        views_.BuildReferenceViews(problem.problem, problem.solution));
    SubmitScores(
        i, /*needs_rollout=*/false, PlanScores(/*needs_rollout=*/false));
    entries_[i].rollout_tasks = PlanScores(/*needs_rollout=*/true);
  }
  if (options_.teacher_prefix_stride == 0) return absl::OkStatus();
  for (const auto& [id, index] : pending_rollouts_) {
    const Problem& problem = *entries_[index].input.problem;
    streamer_.Open(id,
                   {problem.id, problem.problem, problem.solution, {}},
                   entries_[index].rollout_tasks);
  }
  return absl::OkStatus();
}

void SamplePipeline::KeepPrefix(uint64_t id, const std::vector<int32_t>& ids) {
  MutexLock lock(&mutex_);
  const auto found = prefixes_.find(id);
  if (found == prefixes_.end()) return;
  RolloutPrefix& prefix = found->second;
  // A worker that took the task over begins anew, with the same tokens.
  const size_t known = prefix.ids.size() - prefix.prompt_tokens;
  const auto stride = static_cast<size_t>(options_.forward_prefix_stride);
  if (ids.size() < known + stride) return;
  prefix.ids.insert(
      prefix.ids.end(), ids.begin() + static_cast<int64_t>(known), ids.end());
}

std::vector<ScoreTask> SamplePipeline::PlanScores(bool needs_rollout) {
  std::map<WeightSet, ScoreTask> tasks;
  for (const TeacherPass& pass : options_.passes) {
    if (NeedsRollout(pass.view) != needs_rollout) continue;
    tasks[SourceOf(pass.weights)].views[pass.view];  // once a view
  }
  std::vector<ScoreTask> plan;
  for (auto& [weights, task] : tasks) {
    task.id = next_id_++;
    task.weights = weights;
    task.payload = options_.payload;
    task.top_k = options_.top_k;
    task.temperature = options_.temperature;
    plan.push_back(std::move(task));
  }
  return plan;
}

void SamplePipeline::SubmitScores(size_t index,
                                  bool needs_rollout,
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
    pending_scores_[task.id] = {index, task.weights, needs_rollout};
    ++entry.scores_missing;
    teachers_.Submit(std::move(task));
  }
  submitted_.NotifyAll();
}

absl::StatusOr<std::vector<RolloutRecord>> SamplePipeline::CollectRollouts(
    const OnAccepted& on_accepted) {
  // Only the compute thread's Start changes the inputs.
  std::vector<PipelineInput> inputs;
  {
    MutexLock lock(&mutex_);
    for (const Entry& entry : entries_) inputs.push_back(entry.input);
  }
  std::vector<RolloutRecord> records(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].known == nullptr) continue;
    ASSIGN_OR_RETURN(records[i], AcceptRollout(i, *inputs[i].known));
  }
  while (!pending_rollouts_.empty()) {
    ASSIGN_OR_RETURN(const RolloutResult result, NextRollout());
    const auto pending = pending_rollouts_.find(result.id);
    if (pending == pending_rollouts_.end()) continue;
    const size_t index = pending->second;
    pending_rollouts_.erase(pending);
    if (on_accepted) {
      RETURN_IF_ERROR(on_accepted(inputs[index], index, result));
    }
    ASSIGN_OR_RETURN(records[index], AcceptRollout(index, result));
    if (options_.on_progress) {
      options_.on_progress(
          static_cast<int64_t>(inputs.size() - pending_rollouts_.size()),
          static_cast<int64_t>(inputs.size()));
    }
  }
  return records;
}

absl::StatusOr<RolloutResult> SamplePipeline::NextRollout() {
  while (!stop_collecting_) {
    ASSIGN_OR_RETURN(std::optional<RolloutResult> result,
                     rollouts_.NextWithin(kStopTick));
    if (result.has_value()) return *std::move(result);
  }
  return absl::CancelledError("the batch was given up");
}

absl::StatusOr<RolloutRecord> SamplePipeline::MakeRecord(
    const Problem& problem, const RolloutResult& result) const {
  RolloutRecord record;
  record.problem = &problem;
  record.ids = result.ids;
  record.finish_reason = result.finish_reason;
  ASSIGN_OR_RETURN(record.text,
                   tokenizer_.Decode(record.ids, /*skip_special_tokens=*/true));
  const Grade grade = GradeAnswer(record.text, record.problem->answer);
  record.has_box = grade.has_box;
  record.correct = grade.correct && !problem.answer.empty();
  record.is_scored = !views_.ScoredTokens(record.ids).empty();
  record.is_trained =
      record.is_scored ||
      std::ranges::any_of(options_.passes, [](const TeacherPass& pass) {
        return CompletionOf(pass.view) == Completion::kReference;
      });
  return record;
}

absl::StatusOr<RolloutRecord> SamplePipeline::AcceptRollout(
    size_t index, const RolloutResult& result) {
  const Problem& problem = ProblemOf(index);
  ASSIGN_OR_RETURN(RolloutRecord record, MakeRecord(problem, result));
  const bool is_trained = with_scores_ && record.is_trained;
  Views views;
  if (is_trained) {
    ASSIGN_OR_RETURN(
        views,
        views_.Build(
            {problem.id, problem.problem, problem.solution, record.ids},
            KnownViews(index)));
  }
  MutexLock lock(&mutex_);
  Entry& entry = entries_[index];
  entry.is_answered = true;
  entry.is_trained = is_trained;
  prefixes_.erase(entry.rollout_id);
  streamer_.Close(entry.rollout_id, /*submitted=*/is_trained);
  if (is_trained) {
    // What is not scored stands at the answer's end.
    entry.sampler_logprobs = result.logprobs;
    entry.sampler_logprobs.resize(std::min(
        result.logprobs.size(),
        static_cast<size_t>(
            views[static_cast<size_t>(ViewName::kNoneRollout)].scored_count)));
    entry.views = std::move(views);
    SubmitScores(index, /*needs_rollout=*/true, std::move(entry.rollout_tasks));
  }
  return record;
}

absl::Status SamplePipeline::AcceptScore(const ScoreResult& result) {
  std::map<ViewName, TeacherScores> views;
  for (const auto& [view, tensors] : result.views) {
    views[view] = ToScores(tensors, options_.device);
  }
  MutexLock lock(&mutex_);
  const auto pending = pending_scores_.find(result.id);
  if (pending == pending_scores_.end()) return absl::OkStatus();
  const auto [index, weights, needs_rollout] = pending->second;
  pending_scores_.erase(pending);
  Entry& entry = entries_[index];
  for (const TeacherPass& pass : options_.passes) {
    const auto scores = views.find(pass.view);
    if (scores != views.end() && SourceOf(pass.weights) == weights) {
      entry.scores[pass] = scores->second;
    }
  }
  --entry.scores_missing;
  payload_bytes_ += result.payload_bytes;
  (needs_rollout ? teacher_cost_.after : teacher_cost_.ahead) +=
      result.compute_seconds;
  teacher_cost_.ahead += result.ahead_seconds;
  return absl::OkStatus();
}

absl::Status SamplePipeline::AcceptScores(absl::Duration timeout) {
  {
    MutexLock lock(&mutex_);
    if (pending_scores_.empty()) submitted_.WaitFor(&mutex_, timeout);
    if (pending_scores_.empty()) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::optional<ScoreResult> result,
                   teachers_.NextWithin(timeout));
  if (!result.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(AcceptScore(*result));
  return AcceptScores(absl::ZeroDuration());
}

SampleState SamplePipeline::StateOf(size_t index) const {
  MutexLock lock(&mutex_);
  const Entry& entry = entries_[index];
  if (!entry.is_answered) return SampleState::kSampled;
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
  const Entry& entry = entries_[index];
  const auto found = prefixes_.find(entry.rollout_id);
  if (found == prefixes_.end()) return {};
  return found->second.ids;
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
                      std::move(entry.sampler_logprobs)};
}

}  // namespace dapd
