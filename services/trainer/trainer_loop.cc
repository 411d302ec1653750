#include "services/trainer/trainer_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/torch_bridge.h"
#include "services/trainer/evaluation.h"

namespace dapd {
namespace {

void SummarizeRollouts(const std::vector<RolloutRecord>& records,
                       StepReport& report) {
  int64_t truncated = 0;
  int64_t boxed = 0;
  int64_t correct = 0;
  for (const RolloutRecord& record : records) {
    report.generated_tokens += static_cast<int64_t>(record.ids.size());
    truncated += record.finish_reason == FinishReason::kLength ? 1 : 0;
    boxed += record.has_box ? 1 : 0;
    correct += record.correct ? 1 : 0;
    (record.is_scored ? report.samples : report.untrainable_samples) += 1;
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
      policy_(parts_.batch.policy),
      disk_(parts_.batch.config.checkpoint.on_write_error,
            parts_.wait_for_stop,
            &parts_.metrics),
      batch_(parts_.batch,
             [this](int64_t step, const PolicyUpdate& policy) {
               return PlanStep(step, policy);
             }),
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
  RETURN_IF_ERROR(batch_.Start());
  parts_.metrics.RecordPolicy(policy_.version(), policy_.snapshot_version());
  RETURN_IF_ERROR(disk_.Write("the ledger", [&] {
    return parts_.ledger.Started(policy_.version(), batch_.live_digest());
  }));
  DAPD_FAILPOINT("run.after_started");

  if (policy_.version() == 0 && !parts_.recorder.HasEvaluation("before")) {
    RETURN_IF_ERROR(EvaluateHeldOut("before"));
  }
  while (policy_.version() < parts_.batch.config.trainer.steps) {
    RETURN_IF_ERROR(RunStep());
  }
  if (policy_.version() > saved_version_) RETURN_IF_ERROR(SaveNewest());
  // Whoever saved the checkpoint may have died before this.
  if (policy_.version() != exported_version_) {
    RETURN_IF_ERROR(
        disk_.MustWrite("the adapter", [&] { return ExportAdapter(); }));
  }
  // There is no step left, and so the other ranks are done.
  RETURN_IF_ERROR(batch_.BeginStep().status());
  RETURN_IF_ERROR(EvaluateHeldOut("after"));
  RETURN_IF_ERROR(batch_.Finish());
  RETURN_IF_ERROR(disk_.Write("the ledger", [&] {
    return parts_.ledger.Reached(
        "finished", policy_.version(), batch_.live_digest());
  }));
  DAPD_FAILPOINT("run.before_summary");
  return disk_.MustWrite("the summary", [&] {
    return parts_.recorder.Finish(absl::ToDoubleSeconds(absl::Now() - start));
  });
}

absl::Status TrainerLoop::EvaluateHeldOut(const std::string& when) {
  if (parts_.held_out.problems.empty()) return absl::OkStatus();
  parts_.recorder.BeginPhase(TrainerPhase::kEvaluating);
  batch_.ServeLive();
  DAPD_FAILPOINT("evaluation.before");
  ASSIGN_OR_RETURN(const EvaluationReport report,
                   Evaluate(parts_.batch.config,
                            parts_.held_out,
                            *parts_.batch.weights,
                            policy_,
                            parts_.batch.terms,
                            batch_.pipeline()));
  RETURN_IF_ERROR(disk_.Write("the evaluation", [&] {
    return parts_.recorder.RecordEvaluation(when, report);
  }));
  DAPD_FAILPOINT("evaluation.after");
  return absl::OkStatus();
}

absl::Status TrainerLoop::RunStep() {
  StepReport report;
  ASSIGN_OR_RETURN(const std::vector<RolloutRecord> records, Sample(&report));
  RETURN_IF_ERROR(batch_.Train(&report));
  RETURN_IF_ERROR(Record(records, report));
  const Config& config = parts_.batch.config;
  if (policy_.version() % config.checkpoint.interval == 0 &&
      policy_.version() < config.trainer.steps) {
    parts_.recorder.BeginPhase(TrainerPhase::kSaving);
    RETURN_IF_ERROR(
        disk_.Write("the checkpoint", [&] { return SaveCheckpointNow(); }));
  }
  return absl::OkStatus();
}

StepPlan TrainerLoop::PlanStep(int64_t step, const PolicyUpdate& policy) {
  if (step > parts_.batch.config.trainer.steps) return {.step = 0};
  StepPlan plan{.step = step};
  const std::vector<int64_t> rows = batch_.BatchRows(step);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto sample = static_cast<int64_t>(i);
    const Problem& problem =
        parts_.batch.data.problems[static_cast<size_t>(rows[i])];
    const RolloutResult* known = parts_.ledger.Recall(
        step, sample, problem.id, policy.version, policy.adapter.digest);
    if (known != nullptr) plan.recalled[sample] = *known;
  }
  parts_.metrics.RecordRecalled(static_cast<int64_t>(plan.recalled.size()));
  return plan;
}

absl::StatusOr<std::vector<RolloutRecord>> TrainerLoop::Sample(
    StepReport* report) {
  const int64_t step = policy_.version() + 1;
  RETURN_IF_ERROR(batch_.BeginStep().status());
  ASSIGN_OR_RETURN(std::vector<RolloutRecord> records,
                   batch_.Sample(
                       [&](int64_t sample,
                           const Problem& problem,
                           const RolloutResult& result) {
                         return disk_.Write("the ledger", [&] {
                           return parts_.ledger.Accepted(
                               step, sample, problem.id, result);
                         });
                       },
                       report));
  SummarizeRollouts(records, *report);
  RETURN_IF_ERROR(disk_.Write("the samples", [&] {
    return parts_.recorder.RecordSamples(step, records);
  }));
  DAPD_FAILPOINT("rollout.after_samples");
  return records;
}

absl::Status TrainerLoop::Record(const std::vector<RolloutRecord>& records,
                                 const StepReport& report) {
  std::vector<int64_t> trained;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].is_trained) trained.push_back(static_cast<int64_t>(i));
  }
  RETURN_IF_ERROR(disk_.Write("the ledger", [&] {
    return parts_.ledger.Reached(
        "trained", report.step, report.adapter_digest, trained);
  }));
  DAPD_FAILPOINT("step.after_ledger");
  RETURN_IF_ERROR(disk_.Write(
      "metrics.jsonl", [&] { return parts_.recorder.RecordStep(report); }));
  DAPD_FAILPOINT("step.after_metrics");
  parts_.recorder.ShowStep(report);
  return absl::OkStatus();
}

absl::Status TrainerLoop::SaveCheckpointNow() {
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(
      SaveCheckpoint(JoinPath(parts_.recorder.folder(), "checkpoints"),
                     parts_.batch.weights->config,
                     policy_,
                     parts_.identity,
                     parts_.batch.config.checkpoint.keep));
  RETURN_IF_ERROR(parts_.ledger.Reached(
      "checkpointed", policy_.version(), batch_.live_digest()));
  DAPD_FAILPOINT("checkpoint.before_export");
  RETURN_IF_ERROR(ExportAdapter());
  DAPD_FAILPOINT("checkpoint.after_export");
  saved_version_ = policy_.version();
  parts_.metrics.RecordCheckpoint(policy_.version(),
                                  absl::ToDoubleSeconds(absl::Now() - start));
  return absl::OkStatus();
}

absl::Status TrainerLoop::ExportAdapter() {
  RETURN_IF_ERROR(WriteAdapter(JoinPath(parts_.recorder.folder(), "adapter"),
                               policy_.live(),
                               parts_.identity.base_model_path));
  exported_version_ = policy_.version();
  return absl::OkStatus();
}

absl::Status TrainerLoop::SaveNewest() {
  parts_.recorder.BeginPhase(TrainerPhase::kSaving);
  return disk_.MustWrite("the checkpoint", [&] { return SaveCheckpointNow(); });
}

absl::Status RunOtherRank(BatchTrainerParts parts) {
  BatchTrainer batch(std::move(parts), /*planner=*/nullptr);
  const auto run = [&]() -> absl::Status {
    RETURN_IF_ERROR(batch.Start());
    while (true) {
      ASSIGN_OR_RETURN(const bool begun, batch.BeginStep());
      if (!begun) return batch.Finish();
      StepReport report;
      RETURN_IF_ERROR(batch.Sample(nullptr, &report).status());
      RETURN_IF_ERROR(batch.Train(&report));
    }
  };
  absl::Status status;
  const absl::Status caught = CatchTorch([&] { return status = run(); });
  return status.ok() ? caught : status;
}

}  // namespace dapd
