#include "services/trainer/step/batch_trainer.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/validate_config.h"
#include "common/model/fast/chunk_forward.h"
#include "common/training/step_metrics.h"
#include "services/trainer/publish/policy_update_writer.h"
#include "services/trainer/step/merge_ranks.h"
#include "services/trainer/step/phase_timer.h"

namespace dapd {
namespace {

// Sending an answer's new tokens more often costs more than it saves.
constexpr int64_t kLeastStride = 8;

// The number of probe tokens; other weights cannot agree on so many by chance.
constexpr size_t kProbeTokens = 16;

// Without certificates, other machines are only reached with security.insecure,
// in plain text. Otherwise pushes go over TLS or loopback, where no byte
// changes.
DigestKind DigestOfPushes(const SecuritySection& security) {
  return security.insecure ? DigestKind::kSha256 : DigestKind::kXxh3;
}

// Returns the sets of weights that the student's own teachers load. The base is
// always loaded; if the terms read no other set, it is at least probed.
std::set<WeightSet> SetsRead(const std::vector<Term>& terms) {
  std::set<WeightSet> sets;
  for (const TeacherPass& pass : TeacherPasses(terms)) {
    // A row may name the student's own base.
    if (pass.teacher.empty() || pass.teacher == kRowTeacher) {
      sets.insert(pass.weights);
    }
  }
  if (sets.size() > 1) sets.erase(WeightSet::kBase);
  return sets;
}

PipelineOptions MakePipelineOptions(const BatchTrainerParts& parts) {
  PipelineOptions options;
  options.scores.passes = TeacherPasses(parts.terms);
  options.records.scores_references = ScoresReferences(parts.terms);
  options.records.keeps_logprobs = std::ranges::any_of(
      parts.terms,
      [](const Term& term) { return term.importance != Importance::kNone; });
  options.records.reads_siblings =
      std::ranges::any_of(options.scores.passes, [](const TeacherPass& pass) {
        return pass.view == ViewName::kSiblingRollout;
      });
  options.grader = parts.grader;
  options.records.has_grader = parts.grader != nullptr;
  options.scores.payload = parts.config.teacher.payload;
  options.scores.top_k = parts.config.teacher.top_k;
  options.scores.temperature = parts.config.objective.temperature;
  options.device = parts.weights->device();
  options.heads = &parts.teacher_heads;
  // With a lag, answers arrive while the previous step is scored and trained.
  if (parts.config.rollout.max_staleness == 0) {
    if (parts.config.teacher.streaming) {
      options.teacher_prefix_stride =
          std::max(kLeastStride,
                   ChunkTokensFor(parts.config.teacher.chunk_tokens,
                                  parts.weights->device()) /
                       4);
    }
    if (parts.config.trainer.train_while_sampling) {
      options.forward_prefix_stride =
          std::max(kLeastStride, parts.config.trainer.chunk_tokens / 4);
    }
  }
  options.on_progress = parts.on_progress;
  return options;
}

}  // namespace

BatchTrainer::BatchTrainer(BatchTrainerParts parts,
                           std::optional<StepLeader> leader)
    : parts_(std::move(parts)),
      leader_(std::move(leader)),
      step_rows_(static_cast<int64_t>(parts_.data.problems.size()),
                 parts_.config.run.seed),
      pipeline_(parts_.rollouts,
                parts_.teachers,
                parts_.views,
                parts_.tokenizer,
                MakePipelineOptions(parts_)),
      answers_(
          parts_.collective,
          parts_.data,
          pipeline_.record_maker(),
          leader_.has_value() ? std::optional(leader_->ledger) : std::nullopt),
      publisher_({.weights = *parts_.weights,
                  .policy = parts_.policy,
                  .teacher_sets = SetsRead(parts_.terms),
                  .digest_kind = DigestOfPushes(parts_.config.security),
                  .attempt_key = parts_.attempt_key,
                  .rollouts = parts_.rollouts,
                  .teachers = parts_.teachers,
                  .on_served = parts_.on_served}) {}

absl::Status BatchTrainer::Start() {
  ASSIGN_OR_RETURN(
      std::vector<int32_t> probe_ids,
      parts_.views.RolloutPrompt(parts_.data.problems[0].source()));
  if (probe_ids.size() > kProbeTokens) probe_ids.resize(kProbeTokens);
  return publisher_.Start(std::move(probe_ids));
}

bool BatchTrainer::IsEvaluatedAfter(int64_t step) const {
  const EvaluationSection& evaluation = parts_.config.evaluation;
  return !evaluation.path.empty() && evaluation.interval > 0 &&
         step % evaluation.interval == 0 && step < parts_.config.trainer.steps;
}

void BatchTrainer::ServeLive() {
  if (HasLag() && held_ == nullptr) held_ = publisher_.served();
  publisher_.Serve(publisher_.live());
}

std::vector<int64_t> BatchTrainer::BatchRows(int64_t step) {
  std::vector<int64_t> rows;
  const int64_t group_size = parts_.config.rollout.group_size;
  for (const int64_t row :
       step_rows_.Of(step - 1, parts_.config.trainer.batch_size / group_size)) {
    rows.insert(rows.end(), static_cast<size_t>(group_size), row);
  }
  return rows;
}

absl::StatusOr<bool> BatchTrainer::BeginStep() {
  if (!open_.has_value()) {
    const auto held = std::exchange(held_, nullptr);
    RETURN_IF_ERROR(Begin(parts_.policy.version() + 1,
                          held != nullptr ? held : publisher_.served()));
  }
  return open_.has_value();
}

absl::Status BatchTrainer::Begin(int64_t step,
                                 std::shared_ptr<const PolicyUpdate> policy) {
  // Rank 0 may be evaluating the policy, for which it needs this rank's layers.
  RETURN_IF_ERROR(ServeLayers());
  std::string message;
  if (leader_.has_value())
    message = SerializePlan(leader_->plan(step, *policy));
  RETURN_IF_ERROR(parts_.collective.Broadcast(&message));
  ASSIGN_OR_RETURN(StepPlan plan, ParsePlan(message));
  if (plan.step == 0) return absl::OkStatus();
  // The ranks share the workers. Rank 0 plans a step once it has all answers to
  // the previous step, so no rank still needs the policy that is replaced now.
  publisher_.Serve(policy);
  // With a lag, the timeline is still within the previous step.
  if (parts_.timeline != nullptr && !parts_.timeline->recording()) {
    parts_.timeline->BeginStep(plan.step);
  }
  OpenStep& open = open_.emplace();
  open.plan = std::move(plan);
  open.policy = std::move(policy);
  open.rows = BatchRows(open.plan.step);
  open.rules = MakeAnswerRules(parts_.config, open.plan.step);
  open.slices = SamplesOfRanks(open.rows.size());
  const RankSlice& mine = OwnSlice(open);

  const Config& config = parts_.config;
  const std::vector<int64_t> members = MembersOf(open.rows);
  std::vector<PipelineInput> inputs;
  for (size_t sample = mine.begin; sample < mine.end; ++sample) {
    const int64_t row = open.rows[sample];
    const auto place = static_cast<int64_t>(sample);
    inputs.push_back(
        {&parts_.data.problems[static_cast<size_t>(row)],
         KeyOfMember({.seed = config.run.seed,
                      .step = static_cast<uint32_t>(open.plan.step - 1),
                      .example = static_cast<uint32_t>(row)},
                     members[sample])});
    for (auto known = open.plan.recalled.lower_bound({place});
         known != open.plan.recalled.end() && known->first.sample == place;
         ++known) {
      inputs.back().known[known->first.attempt] = &known->second;
    }
  }
  DAPD_FAILPOINT("rollout.before_start");
  ASSIGN_OR_RETURN(
      open.batch,
      pipeline_.Submit(std::move(inputs),
                       {.temperature = config.rollout.temperature,
                        .top_k = config.rollout.top_k,
                        .top_p = config.rollout.top_p,
                        .max_new_tokens = config.rollout.max_new_tokens},
                       open.rules));
  DAPD_FAILPOINT("rollout.after_submit");
  return absl::OkStatus();
}

// Each slice holds whole micro-batches and whole groups of answers.
std::vector<RankSlice> BatchTrainer::SamplesOfRanks(size_t batch_size) const {
  const auto size = static_cast<size_t>(SamplesOfUnit(parts_.config));
  const auto ranks = static_cast<size_t>(parts_.collective.size());
  std::vector<RankSlice> slices;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const RankSlice groups =
        SliceOf(rank, ranks, (batch_size + size - 1) / size);
    slices.push_back(
        {groups.begin * size, std::min(groups.end * size, batch_size)});
  }
  return slices;
}

absl::StatusOr<std::vector<RolloutRecord>> BatchTrainer::Sample(
    StepReport* report) {
  parts_.on_phase(TrainerPhase::kRollout);
  BeginTimeline();
  const ScopedSlice slice(
      parts_.timeline, kPhasesTrack, NameOf(TrainerPhase::kRollout));
  PhaseTimer timer(&report->seconds[TrainerPhase::kRollout]);
  OpenStep step = *std::exchange(open_, std::nullopt);
  report->step = step.plan.step;
  SetLogStep(step.plan.step);
  payload_bytes_before_ = pipeline_.payload_bytes();
  scored_tokens_before_ = pipeline_.scored_tokens();
  teacher_cost_before_ = pipeline_.teacher_cost();
  RETURN_IF_ERROR(pipeline_.Start(std::move(step.batch),
                                  parts_.policy.SetsAtBase(),
                                  /*with_scores=*/true));
  DAPD_FAILPOINT("rollout.after_start");
  slice_trainer_.emplace(parts_,
                         pipeline_,
                         head_workspace_,
                         OwnSlice(step).end - OwnSlice(step).begin,
                         report);
  // Ranks that share layers must train at the same time.
  RETURN_IF_ERROR(parts_.config.trainer.train_while_sampling &&
                          parts_.sharded_layers == nullptr
                      ? CollectAndTrain(step)
                      : WaitAndCollect(step));
  DAPD_FAILPOINT("rollout.after_collect");
  ASSIGN_OR_RETURN(std::vector<RolloutRecord> records,
                   answers_.Share(step, slice_));
  if (HasLag()) {
    if (step.plan.is_evaluated) {
      held_ = publisher_.live();
    } else {
      RETURN_IF_ERROR(Begin(step.plan.step + 1, publisher_.live()));
    }
  }
  return records;
}

void BatchTrainer::BeginTimeline() {
  step_began_ = absl::Now();
  if (parts_.timeline != nullptr && open_.has_value()) {
    parts_.timeline->BeginStep(open_->plan.step);
  }
}

void BatchTrainer::EndTimeline() {
  if (parts_.timeline == nullptr) return;
  parts_.timeline->AddOwn(
      kStepsTrack, {.name = "step", .begin = step_began_, .end = absl::Now()});
  parts_.timeline->EndStep();
}

absl::Status BatchTrainer::CollectSlice(const OpenStep& step) {
  answers_.Begin();
  const auto place = [&](size_t index, int64_t attempt) {
    return AnswerPlace{
        .sample = static_cast<int64_t>(OwnSlice(step).begin + index),
        .attempt = attempt};
  };
  ASSIGN_OR_RETURN(
      slice_,
      pipeline_.CollectRollouts(
          [&](size_t index, int64_t attempt, const RolloutResult& result) {
            return answers_.Take(step, place(index, attempt), result);
          },
          [&](size_t index, int64_t attempt, const RolloutResult& result) {
            return answers_.TakeGrade(step, place(index, attempt), result);
          }));
  return absl::OkStatus();
}

absl::Status BatchTrainer::WaitAndCollect(const OpenStep& step) {
  const ScopedSlice slice(parts_.timeline, kComputeTrack, "wait for answers");
  return CollectSlice(step);
}

absl::Status BatchTrainer::CollectAndTrain(const OpenStep& step) {
  absl::Status collected;
  std::atomic<bool> is_collected = false;
  std::jthread collector([&] {
    collected = CollectSlice(step);
    is_collected = true;
  });
  // Runs even if training throws, before the thread is joined.
  const absl::Cleanup stop = [this] { pipeline_.StopCollecting(); };
  RETURN_IF_ERROR(
      slice_trainer_->TrainAhead([&] { return is_collected.load(); }));
  collector.join();
  return collected;
}

absl::Status BatchTrainer::Train(StepReport* report) {
  RETURN_IF_ERROR(FinishGradient(report));
  parts_.on_phase(TrainerPhase::kOptimizing);
  std::unique_ptr<PolicyUpdateWriter> writer;
  {
    const ScopedSlice slice(
        parts_.timeline, kPhasesTrack, NameOf(TrainerPhase::kOptimizing));
    PhaseTimer timer(&report->seconds[TrainerPhase::kOptimizing]);
    if (has_gradient_ && parts_.collective.size() > 1) {
      const ScopedSlice sum(parts_.timeline, kComputeTrack, "sum of the ranks");
      at::Tensor gradient = parts_.policy.FlatGradient();
      RETURN_IF_ERROR(parts_.devices.Sum(gradient));
      parts_.policy.SetFlatGradient(gradient);
    }
    DAPD_FAILPOINT("optimizer.before_step");
    ASSIGN_OR_RETURN(writer, publisher_.WriteNext());
    bool sending = false;  // set by the first tensor of the step
    const Policy::OnUpdated on_updated = [&](const at::Tensor& tensor) {
      if (!std::exchange(sending, true) && !HasLag()) {
        publisher_.Serve(writer->update());
      }
      return writer->Append(tensor);
    };
    if (!has_gradient_) {
      LogWarning(absl::StrCat("step ",
                              report->step,
                              " has nothing to learn from: no sample has "
                              "tokens to score and a target; the weights stay "
                              "as they are"));
    }
    const ScopedSlice optimizer(parts_.timeline, kComputeTrack, "optimizer");
    ASSIGN_OR_RETURN(report->optimizer,
                     has_gradient_ ? parts_.policy.Step(on_updated)
                                   : parts_.policy.Rest(on_updated));
    DAPD_FAILPOINT("optimizer.after_step");
  }
  RETURN_IF_ERROR(Publish(*writer, report));
  EndTimeline();
  return absl::OkStatus();
}

absl::Status BatchTrainer::Publish(PolicyUpdateWriter& writer,
                                   StepReport* report) {
  parts_.on_phase(TrainerPhase::kPublishing);
  const ScopedSlice slice(
      parts_.timeline, kPhasesTrack, NameOf(TrainerPhase::kPublishing));
  PhaseTimer timer(&report->seconds[TrainerPhase::kPublishing]);
  DAPD_FAILPOINT("publish.before_live");
  {
    const ScopedSlice push(parts_.timeline, kComputeTrack, "push");
    RETURN_IF_ERROR(writer.Finish(*parts_.weights, parts_.policy.live()));
    publisher_.SetLive(writer.update());
    RETURN_IF_ERROR(publisher_.PublishWeights());
  }
  DAPD_FAILPOINT("publish.after_live");
  report->adapter_digest = live_digest();
  report->snapshot_version = parts_.policy.snapshot_version();
  CountScores(report);
  return MergeReports(parts_.collective, live_digest(), report);
}

void BatchTrainer::CountScores(StepReport* report) const {
  report->payload_bytes =
      static_cast<int64_t>(pipeline_.payload_bytes() - payload_bytes_before_);
  report->scored_tokens = pipeline_.scored_tokens() - scored_tokens_before_;
  const TeacherCost& cost = pipeline_.teacher_cost();
  report->teacher_seconds = cost.after - teacher_cost_before_.after;
  report->teacher_ahead_seconds = cost.ahead - teacher_cost_before_.ahead;
}

absl::Status BatchTrainer::ServeLayers() {
  return parts_.sharded_layers == nullptr
             ? absl::OkStatus()
             : parts_.sharded_layers->ServeOthers();
}

absl::Status BatchTrainer::FinishGradient(StepReport* report) {
  const ShardedLayers* const layers = parts_.sharded_layers;
  const double waited = layers == nullptr ? 0.0 : layers->wait_seconds();
  RETURN_IF_ERROR(slice_trainer_->TrainRest());
  if (layers != nullptr) {
    report->gather_wait_seconds = layers->wait_seconds() - waited;
  }
  RETURN_IF_ERROR(ServeLayers());
  DAPD_FAILPOINT("train.after_last_micro_batch");
  std::vector<float> counts = {
      static_cast<float>(slice_trainer_->num_trained()),
      slice_trainer_->objective().HasGradient() ? 1.0F : 0.0F,
      slice_trainer_->objective().HasFiniteLoss() ? 0.0F : 1.0F};
  RETURN_IF_ERROR(parts_.collective.Sum(absl::MakeSpan(counts)));
  // Its gradient may be finite, but is useless.
  if (counts[2] > 0.0F) {
    return absl::DataLossError(
        absl::StrCat("the loss of step ",
                     report->step,
                     " is not finite; the weights stay as they were"));
  }
  const float trained = counts[0];
  has_gradient_ = counts[1] > 0.0F;
  // The mean over the micro-batches of all ranks.
  if (trained > 0.0F) {
    parts_.policy.ScaleGradient(1.0 / static_cast<double>(trained));
  }
  ObjectiveAccumulator& objective = slice_trainer_->objective();
  RETURN_IF_ERROR(MergeLosses(parts_.collective, &objective));
  if (parts_.collective.rank() == 0) report->objective = objective.Finish();
  return absl::OkStatus();
}

}  // namespace dapd
