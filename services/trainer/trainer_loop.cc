#include "services/trainer/trainer_loop.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/model/adapter.h"
#include "common/tensor/torch_bridge.h"
#include "services/trainer/evaluation.h"
#include "services/trainer/make_policy_update.h"

namespace dapd {
namespace {

// Enough tokens that other weights cannot agree by chance.
constexpr size_t kProbeTokens = 16;

PipelineOptions MakePipelineOptions(const TrainerParts& parts) {
  PipelineOptions options;
  options.passes = TeacherPasses(parts.terms);
  options.payload = ParseTeacherPayload(parts.config.teacher.payload).value();
  options.top_k = parts.config.teacher.top_k;
  options.temperature = parts.config.objective.temperature;
  options.device = parts.weights->device();
  return options;
}

// Adds the seconds until destruction to `*sum`.
class PhaseTimer {
 public:
  explicit PhaseTimer(double* sum) : sum_(sum), start_(absl::Now()) {}
  ~PhaseTimer() { *sum_ += absl::ToDoubleSeconds(absl::Now() - start_); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double* sum_;
  absl::Time start_;
};

void SummarizeRollouts(const std::vector<RolloutRecord>& records,
                       StepReport& report) {
  int64_t truncated = 0;
  int64_t boxed = 0;
  int64_t correct = 0;
  for (const RolloutRecord& record : records) {
    report.generated_tokens += static_cast<int64_t>(record.ids.size());
    truncated += record.end == RolloutEnd::kLength ? 1 : 0;
    boxed += record.has_box ? 1 : 0;
    correct += record.correct ? 1 : 0;
    (record.trainable ? report.samples : report.untrainable_samples) += 1;
  }
  const auto count = static_cast<double>(records.size());
  report.mean_rollout_tokens =
      static_cast<double>(report.generated_tokens) / count;
  report.truncated_fraction = static_cast<double>(truncated) / count;
  report.boxed_fraction = static_cast<double>(boxed) / count;
  report.correct_fraction = static_cast<double>(correct) / count;
}

}  // namespace

TrainerLoop::TrainerLoop(TrainerParts parts)
    : parts_(std::move(parts)),
      policy_(parts_.policy),
      disk_(parts_.config.checkpoint.on_write_error,
            parts_.wait_for_stop,
            &parts_.metrics),
      pipeline_(parts_.rollouts,
                parts_.teachers,
                parts_.views,
                parts_.tokenizer,
                MakePipelineOptions(parts_)),
      saved_version_(policy_.version()) {}

absl::Status TrainerLoop::Run() {
  absl::Status status;
  const absl::Status caught = CatchTorch([&] { return status = RunSteps(); });
  if (status.ok()) status = caught;
  if (absl::IsCancelled(status) && policy_.version() > saved_version_) {
    const absl::Status saved = SaveCheckpointNow();
    LogInfo(saved.ok() ? absl::StrCat("stopped after step ",
                                      policy_.version(),
                                      "; adapter and checkpoint are in ",
                                      parts_.recorder.folder(),
                                      "; the same command goes on")
                       : absl::StrCat("stopped, and could not save: ",
                                      saved.ToString()));
  }
  return status;
}

absl::Status TrainerLoop::RunSteps() {
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(probe_ids_,
                   parts_.views.RolloutPrompt(parts_.data.problems[0].problem));
  if (probe_ids_.size() > kProbeTokens) probe_ids_.resize(kProbeTokens);
  RETURN_IF_ERROR(PublishSnapshot());
  DAPD_FAILPOINT("publish.after_first_snapshot");
  RETURN_IF_ERROR(PublishLive());
  RETURN_IF_ERROR(disk_.Write("the ledger", [&] {
    return parts_.ledger.Started(policy_.version(), live_digest_);
  }));
  DAPD_FAILPOINT("run.after_started");

  if (policy_.version() == 0 && !parts_.recorder.HasEvaluation("before")) {
    RETURN_IF_ERROR(EvaluateHeldOut("before"));
  }
  while (policy_.version() < parts_.config.trainer.steps) {
    RETURN_IF_ERROR(RunStep());
  }
  if (policy_.version() > saved_version_) RETURN_IF_ERROR(SaveNewest());
  RETURN_IF_ERROR(EvaluateHeldOut("after"));
  RETURN_IF_ERROR(disk_.Write("the ledger", [&] {
    return parts_.ledger.Reached("finished", policy_.version(), live_digest_);
  }));
  DAPD_FAILPOINT("run.before_summary");
  return disk_.MustWrite("the summary", [&] {
    return parts_.recorder.Finish(absl::ToDoubleSeconds(absl::Now() - start));
  });
}

absl::Status TrainerLoop::EvaluateHeldOut(const std::string& when) {
  if (parts_.held_out.problems.empty()) return absl::OkStatus();
  parts_.recorder.BeginPhase("evaluating");
  DAPD_FAILPOINT("evaluation.before");
  ASSIGN_OR_RETURN(const EvaluationReport report,
                   Evaluate(parts_.config,
                            parts_.held_out,
                            *parts_.weights,
                            policy_,
                            parts_.terms,
                            pipeline_));
  RETURN_IF_ERROR(disk_.Write("the evaluation", [&] {
    return parts_.recorder.RecordEvaluation(when, report);
  }));
  DAPD_FAILPOINT("evaluation.after");
  return absl::OkStatus();
}

absl::Status TrainerLoop::RunStep() {
  StepReport report;
  report.step = policy_.version() + 1;
  const uint64_t bytes_before = pipeline_.payload_bytes();
  const int64_t scored_before = pipeline_.scored_tokens();

  ASSIGN_OR_RETURN(const std::vector<RolloutRecord> records, Sample(report));
  RETURN_IF_ERROR(TrainBatch(records, report));

  parts_.recorder.BeginPhase("publishing");
  {
    PhaseTimer timer(&report.seconds["optimizer"]);
    DAPD_FAILPOINT("optimizer.before_step");
    ASSIGN_OR_RETURN(report.optimizer, policy_.Step());
    DAPD_FAILPOINT("optimizer.after_step");
  }
  {
    PhaseTimer timer(&report.seconds["publish"]);
    if (report.optimizer.snapshot_refreshed) {
      DAPD_FAILPOINT("publish.before_snapshot");
      RETURN_IF_ERROR(PublishSnapshot());
      DAPD_FAILPOINT("publish.after_snapshot");
    }
    DAPD_FAILPOINT("publish.before_live");
    RETURN_IF_ERROR(PublishLive());
    DAPD_FAILPOINT("publish.after_live");
  }
  report.adapter_digest = live_digest_;
  report.snapshot_version = policy_.snapshot_version();
  report.payload_bytes = pipeline_.payload_bytes() - bytes_before;
  report.scored_tokens = pipeline_.scored_tokens() - scored_before;
  std::vector<int64_t> trained;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].trainable) trained.push_back(static_cast<int64_t>(i));
  }
  RETURN_IF_ERROR(disk_.Write("the ledger", [&] {
    return parts_.ledger.Reached("trained", report.step, live_digest_, trained);
  }));
  DAPD_FAILPOINT("step.after_ledger");
  RETURN_IF_ERROR(disk_.Write(
      "metrics.jsonl", [&] { return parts_.recorder.RecordStep(report); }));
  DAPD_FAILPOINT("step.after_metrics");
  parts_.recorder.ShowStep(report);
  const Config& config = parts_.config;
  if (policy_.version() % config.checkpoint.interval == 0 &&
      policy_.version() < config.trainer.steps) {
    parts_.recorder.BeginPhase("saving");
    RETURN_IF_ERROR(
        disk_.Write("the checkpoint", [&] { return SaveCheckpointNow(); }));
  }
  return absl::OkStatus();
}

std::vector<PipelineInput> TrainerLoop::StepInputs(int64_t step) const {
  const Config& config = parts_.config;
  std::vector<PipelineInput> inputs;
  for (const int64_t row :
       StepRows(static_cast<int64_t>(parts_.data.problems.size()),
                config.run.seed,
                step - 1,
                config.trainer.batch_size)) {
    const Problem& problem = parts_.data.problems[static_cast<size_t>(row)];
    inputs.push_back({&problem,
                      {.seed = config.run.seed,
                       .step = static_cast<uint32_t>(step - 1),
                       .example = static_cast<uint32_t>(row)},
                      parts_.ledger.Recall(step,
                                           static_cast<int64_t>(inputs.size()),
                                           problem.id,
                                           live_digest_)});
  }
  return inputs;
}

absl::StatusOr<std::vector<RolloutRecord>> TrainerLoop::Sample(
    StepReport& report) {
  const RolloutSection& rollout = parts_.config.rollout;
  parts_.recorder.BeginPhase("rollout");
  PhaseTimer timer(&report.seconds["rollout"]);
  std::vector<PipelineInput> inputs = StepInputs(report.step);
  parts_.metrics.RecordRecalled(
      std::count_if(inputs.begin(), inputs.end(), [](const auto& input) {
        return input.known != nullptr;
      }));
  DAPD_FAILPOINT("rollout.before_start");
  RETURN_IF_ERROR(
      pipeline_.Start(std::move(inputs),
                      {.temperature = rollout.temperature,
                       .top_k = rollout.top_k,
                       .top_p = rollout.top_p,
                       .max_new_tokens = rollout.max_new_tokens},
                      /*snapshot_is_base=*/policy_.snapshot() == nullptr,
                      /*with_scores=*/true));
  DAPD_FAILPOINT("rollout.after_start");
  ASSIGN_OR_RETURN(std::vector<RolloutRecord> records,
                   pipeline_.CollectRollouts([&](const PipelineInput& input,
                                                 size_t index,
                                                 const RolloutResult& result) {
                     return disk_.Write("the ledger", [&] {
                       return parts_.ledger.Accepted(
                           report.step,
                           static_cast<int64_t>(index),
                           input.problem->id,
                           result);
                     });
                   }));
  DAPD_FAILPOINT("rollout.after_collect");
  SummarizeRollouts(records, report);
  RETURN_IF_ERROR(disk_.Write("the samples", [&] {
    return parts_.recorder.RecordSamples(report.step, records);
  }));
  DAPD_FAILPOINT("rollout.after_samples");
  return records;
}

absl::Status TrainerLoop::TrainBatch(const std::vector<RolloutRecord>& records,
                                     StepReport& report) {
  const Config& config = parts_.config;
  const auto size = static_cast<size_t>(config.trainer.micro_batch_size);
  // Micro-batches keep the batch's grouping; an untrainable sample leaves a
  // gap, and a micro-batch of gaps only does not count.
  std::vector<std::vector<size_t>> micro_batches;
  for (size_t begin = 0; begin < records.size(); begin += size) {
    std::vector<size_t> group;
    for (size_t i = begin; i < std::min(begin + size, records.size()); ++i) {
      if (records[i].trainable) {
        group.push_back(i);
      } else {
        LogWarning(absl::StrCat("step ",
                                report.step,
                                ": the answer to problem '",
                                records[i].problem->id,
                                "' is empty; it is left out"));
      }
    }
    if (!group.empty()) micro_batches.push_back(std::move(group));
  }
  if (micro_batches.empty()) {
    return absl::DataLossError(absl::StrCat(
        "step ",
        report.step,
        ": every answer of the batch is empty, so there ",
        "is nothing to train on; look at samples/ in the run folder, and at "
        "rollout.temperature and the learning rate"));
  }
  ObjectiveAccumulator accumulator(parts_.terms);
  for (const std::vector<size_t>& group : micro_batches) {
    std::vector<ScoredSample> samples;
    {
      parts_.recorder.BeginPhase("scoring");
      PhaseTimer timer(&report.seconds["score"]);
      for (const size_t index : group) {
        ASSIGN_OR_RETURN(ScoredSample sample, pipeline_.TakeScored(index));
        samples.push_back(std::move(sample));
      }
    }
    parts_.recorder.BeginPhase("training");
    DAPD_FAILPOINT("train.before_micro_batch");
    PhaseTimer timer(&report.seconds["train"]);
    accumulator.Add(AccumulateMicroBatch(
        *parts_.weights,
        policy_.live(),
        parts_.terms,
        samples,
        {.head = {.temperature = config.objective.temperature},
         .gradient_scale = 1.0 / static_cast<double>(micro_batches.size()),
         .recompute = config.trainer.recompute}));
  }
  DAPD_FAILPOINT("train.after_last_micro_batch");
  report.objective = accumulator.Finish();
  return absl::OkStatus();
}

absl::Status TrainerLoop::PublishLive() {
  ASSIGN_OR_RETURN(auto update,
                   MakePolicyUpdate(*parts_.weights,
                                    &policy_.live(),
                                    policy_.version(),
                                    parts_.config.model.path,
                                    probe_ids_));
  live_digest_ = update->adapter.digest;
  parts_.rollouts.SetPolicy(std::move(update));
  return absl::OkStatus();
}

absl::Status TrainerLoop::PublishSnapshot() {
  ASSIGN_OR_RETURN(auto update,
                   MakePolicyUpdate(*parts_.weights,
                                    policy_.snapshot(),
                                    policy_.snapshot_version(),
                                    parts_.config.model.path,
                                    probe_ids_));
  parts_.teachers.SetSnapshot(std::move(update));
  return absl::OkStatus();
}

absl::Status TrainerLoop::SaveCheckpointNow() {
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(
      SaveCheckpoint(JoinPath(parts_.recorder.folder(), "checkpoints"),
                     parts_.weights->config,
                     policy_,
                     parts_.identity,
                     parts_.config.checkpoint.keep));
  RETURN_IF_ERROR(
      parts_.ledger.Reached("checkpointed", policy_.version(), live_digest_));
  DAPD_FAILPOINT("checkpoint.before_export");
  RETURN_IF_ERROR(WriteAdapter(JoinPath(parts_.recorder.folder(), "adapter"),
                               policy_.live(),
                               parts_.config.model.path));
  DAPD_FAILPOINT("checkpoint.after_export");
  saved_version_ = policy_.version();
  parts_.metrics.RecordCheckpoint(policy_.version(),
                                  absl::ToDoubleSeconds(absl::Now() - start));
  return absl::OkStatus();
}

absl::Status TrainerLoop::SaveNewest() {
  parts_.recorder.BeginPhase("saving");
  return disk_.MustWrite("the checkpoint", [&] { return SaveCheckpointNow(); });
}

}  // namespace dapd
