#include "services/trainer/trainer_loop.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/work_mark.h"
#include "common/config/preset_terms.h"
#include "common/model/spec/model_card.h"
#include "common/model/weights/adapter.h"
#include "common/rpc/pool/task_failure.h"
#include "common/tensor/torch_bridge.h"
#include "services/trainer/evaluation.h"
#include "services/trainer/record/training_card.h"

namespace dapd {
namespace {

void SummarizeRollouts(const std::vector<RolloutRecord>& records,
                       StepReport& report) {
  int64_t tokens = 0;
  const auto share = [&](const auto& holds) {
    return static_cast<double>(std::ranges::count_if(records, holds)) /
           static_cast<double>(records.size());
  };
  for (const RolloutRecord& record : records) {
    tokens += static_cast<int64_t>(record.answer.ids.size());
    report.generated_tokens += record.sampled_tokens;
    if (record.is_left_out) {
      ++report.left_out_samples;
    } else {
      (record.is_scored ? report.samples : report.untrainable_samples) += 1;
    }
  }
  report.mean_rollout_tokens =
      static_cast<double>(tokens) / static_cast<double>(records.size());
  report.truncated_fraction = share([](const RolloutRecord& record) {
    return record.answer.finish_reason == FinishReason::kLength;
  });
  report.boxed_fraction =
      share([](const RolloutRecord& record) { return record.grade.has_box; });
  report.taught_fraction = share(
      [](const RolloutRecord& record) { return !record.context.empty(); });
  report.verified_fraction =
      share([](const RolloutRecord& record) { return record.is_approved; });
}

// A grader of the user's own may leave some answers of a group ungraded. The
// built-in grader grades all of them or, without an expected answer, none.
void SummarizeGrades(const std::vector<RolloutRecord>& records,
                     int64_t group_size,
                     StepReport& report) {
  const auto size = static_cast<size_t>(group_size);
  int64_t groups = 0;
  int64_t graded = 0;
  int64_t solved = 0;
  int64_t correct = 0;
  for (size_t begin = 0; begin < records.size(); begin += size) {
    const auto group = std::span(records).subspan(begin, size);
    // Problems have no answers if the objective trains references alone.
    if (group[0].answer.ids.empty()) continue;
    const auto with_grade = std::ranges::count_if(group, IsGraded);
    if (with_grade == 0) continue;
    graded += with_grade;
    const auto right = std::ranges::count_if(
        group,
        [](const RolloutRecord& record) { return record.grade.correct; });
    ++groups;
    solved += right > 0 ? 1 : 0;
    correct += right;
  }
  if (groups == 0) return;
  report.correct_fraction =
      static_cast<double>(correct) / static_cast<double>(graded);
  report.solved_fraction =
      static_cast<double>(solved) / static_cast<double>(groups);
}

}  // namespace

TrainerLoop::TrainerLoop(TrainerParts parts)
    : parts_(std::move(parts)),
      policy_(parts_.batch.policy),
      disk_(parts_.recorder.folder(),
            parts_.batch.config.checkpoint.on_write_error,
            parts_.wait_for_stop,
            &parts_.metrics,
            &parts_.status),
      batch_(parts_.batch,
             StepLeader{.plan =
                            [this](int64_t step, const PolicyUpdate& policy) {
                              return PlanStep(step, policy);
                            },
                        .ledger = {parts_.ledger, disk_}}),
      saved_version_(policy_.version()),
      recorded_version_(policy_.version()) {}

absl::Status TrainerLoop::Run() {
  absl::Status status;
  const absl::Status caught = CatchTorch([&] { return status = RunSteps(); });
  if (status.ok()) status = caught;
  // A step with incomplete records is done again, as after a crash.
  if (IsPolicyWholeAfter(status) && policy_.version() > saved_version_ &&
      policy_.version() == recorded_version_) {
    const absl::Status saved = CatchTorch([&] { return SaveCheckpointNow(); });
    if (saved.ok()) {
      LogInfo(absl::StrCat("stopped after step ",
                           policy_.version(),
                           "; adapter and checkpoint are in ",
                           parts_.recorder.folder(),
                           "; the same command resumes the run"));
    } else {
      LogWarning(absl::StrCat("stopped, but step ",
                              policy_.version(),
                              " could not be saved in full: ",
                              std::string(saved.message())));
    }
  }
  // Ranks that are told to stop end one by one, so a rank may miss another.
  if (absl::IsAborted(status) && parts_.wait_for_stop(absl::ZeroDuration())) {
    return absl::CancelledError("the run was told to stop");
  }
  return status;
}

bool TrainerLoop::IsPolicyWholeAfter(const absl::Status& status) const {
  // ABORTED may also mean that this rank's device failed, and the policy is
  // lost.
  return absl::IsCancelled(status) || absl::IsUnavailable(status) ||
         IsTaskFailure(status) ||
         (absl::IsAborted(status) && parts_.batch.collective.HasLostRank());
}

absl::Status TrainerLoop::RunSteps() {
  const absl::Time start = SteadyNow();
  RETURN_IF_ERROR(batch_.Start());
  parts_.metrics.RecordPolicy(policy_.version(), policy_.snapshot_version());
  RETURN_IF_ERROR(disk_.Write("identity.json", [&] {
    return WriteIdentity(parts_.recorder.folder(), parts_.identity);
  }));
  RETURN_IF_ERROR(disk_.Write("the ledger", [&] {
    return parts_.ledger.Started(policy_.version(), batch_.live_digest());
  }));
  DAPD_FAILPOINT("run.after_started");

  if (policy_.version() == 0) {
    ASSIGN_OR_RETURN(
        const bool is_known,
        parts_.recorder.RecallEvaluation("before", batch_.live_digest()));
    if (!is_known) RETURN_IF_ERROR(EvaluateHeldOut("before"));
  }
  // An attempt that saved the checkpoint may have died before it evaluated.
  RETURN_IF_ERROR(EvaluateWithin());
  // Without any worker to wait for, nothing else would notice a stop.
  const bool waits_for_nobody = !StepsNeedAnswers(parts_.batch.config) &&
                                TeacherPasses(parts_.batch.terms).empty();
  while (policy_.version() < parts_.batch.config.trainer.steps) {
    if (waits_for_nobody && parts_.wait_for_stop(absl::ZeroDuration())) {
      return absl::CancelledError("the run was told to stop");
    }
    RETURN_IF_ERROR(RunStep());
    MarkStep(policy_.version());
  }
  if (policy_.version() > saved_version_) RETURN_IF_ERROR(SaveNewest());
  // An attempt that saved the checkpoint may have died before it exported.
  if (policy_.version() != exported_version_) {
    RETURN_IF_ERROR(
        disk_.MustWrite("the adapter", [&] { return ExportAdapter(); }));
  }
  RETURN_IF_ERROR(EvaluateHeldOut("after"));
  RETURN_IF_ERROR(KeepBest("after"));
  RETURN_IF_ERROR(disk_.Write("the ledger", [&] {
    return parts_.ledger.Reached(
        "finished", policy_.version(), batch_.live_digest());
  }));
  DAPD_FAILPOINT("run.before_summary");
  RETURN_IF_ERROR(disk_.MustWrite("the summary", [&] {
    return parts_.recorder.Finish(absl::ToDoubleSeconds(SteadyNow() - start));
  }));
  // Plans the end, at which the other ranks exit. This comes only when this
  // rank is done: if it were started again earlier, it would wait for them.
  RETURN_IF_ERROR(batch_.BeginStep().status());
  parts_.on_saved(policy_.version());
  return absl::OkStatus();
}

absl::Status TrainerLoop::EvaluateHeldOut(const std::string& when) {
  if (parts_.held_out.problems.empty()) return absl::OkStatus();
  parts_.recorder.BeginPhase(TrainerPhase::kEvaluating);
  const ScopedSlice slice(
      parts_.batch.timeline, kPhasesTrack, NameOf(TrainerPhase::kEvaluating));
  batch_.ServeLive();
  DAPD_FAILPOINT("evaluation.before");
  ASSIGN_OR_RETURN(EvaluationReport report,
                   Evaluate({.config = parts_.batch.config,
                             .held_out = parts_.held_out,
                             .weights = *parts_.batch.weights,
                             .policy = policy_,
                             .terms = parts_.batch.terms,
                             .tokenizer = parts_.batch.tokenizer,
                             .views = parts_.batch.views,
                             .pipeline = batch_.pipeline(),
                             .teacher_heads = parts_.batch.teacher_heads,
                             .grades = KeptGrades()}));
  report.adapter_digest = batch_.live_digest();
  parts_.recorder.ShowEvaluation(when, report);
  RETURN_IF_ERROR(disk_.Write("the evaluation", [&] {
    return parts_.recorder.WriteEvaluation(when, report);
  }));
  DAPD_FAILPOINT("evaluation.after");
  if (exported_version_ != policy_.version()) return absl::OkStatus();
  return disk_.Write("the model card", [&] {
    return WriteFileAtomically(
        JoinPath(parts_.recorder.folder(),
                 absl::StrCat("adapter/", kModelCardFile)),
        Card());
  });
}

HeldOutGrades TrainerLoop::KeptGrades() {
  const int64_t version = policy_.version();
  return {
      .keep =
          [this, version](
              size_t index, int64_t /*attempt*/, const RolloutResult& answer) {
            return disk_.Write("the ledger", [&] {
              return parts_.ledger.HeldOutGraded(
                  version, static_cast<int64_t>(index), answer);
            });
          },
      .recall =
          [this, version](
              size_t index, int64_t /*attempt*/, const RolloutResult& answer) {
            return parts_.ledger.RecallHeldOutGrade(
                version, static_cast<int64_t>(index), answer.ids);
          }};
}

absl::Status TrainerLoop::EvaluateWithin() {
  const int64_t step = policy_.version();
  if (step == 0) return absl::OkStatus();
  const std::string when = NameWithinRun(step);
  ASSIGN_OR_RETURN(
      const bool is_known,
      parts_.recorder.RecallEvaluation(when, batch_.live_digest()));
  if (!is_known) {
    if (!batch_.IsEvaluatedAfter(step)) return absl::OkStatus();
    RETURN_IF_ERROR(EvaluateHeldOut(when));
  }
  return KeepBest(when);
}

absl::Status TrainerLoop::KeepBest(const std::string& when) {
  if (parts_.batch.config.evaluation.interval == 0 ||
      parts_.recorder.evaluations().Best() != when) {
    return absl::OkStatus();
  }
  // The adapter that it replaces is lost, so its own step must survive a kill.
  if (policy_.version() > saved_version_) RETURN_IF_ERROR(SaveNewest());
  // The next step overwrites these weights, of which there is no other copy.
  return disk_.MustWrite("the best adapter", [&]() -> absl::Status {
    const RunEvaluations& evaluations = parts_.recorder.evaluations();
    const std::string folder = evaluations.BestFolder();
    RETURN_IF_ERROR(evaluations.WriteBest(when));
    RETURN_IF_ERROR(
        WriteAdapter(folder, policy_.live(), parts_.identity.base_model_path));
    return WriteFileAtomically(JoinPath(folder, kModelCardFile), Card());
  });
}

absl::Status TrainerLoop::RunStep() {
  StepReport report;
  ASSIGN_OR_RETURN(const std::vector<RolloutRecord> records, Sample(&report));
  RETURN_IF_ERROR(batch_.Train(&report));
  parts_.recorder.CompareSteps(&report);
  RETURN_IF_ERROR(Record(records, report));
  const Config& config = parts_.batch.config;
  if (policy_.version() % config.checkpoint.interval == 0 &&
      policy_.version() < config.trainer.steps) {
    parts_.recorder.BeginPhase(TrainerPhase::kSaving);
    const ScopedSlice slice(
        parts_.batch.timeline, kPhasesTrack, NameOf(TrainerPhase::kSaving));
    RETURN_IF_ERROR(
        disk_.Write("the checkpoint", [&] { return SaveCheckpointNow(); }));
  }
  return EvaluateWithin();
}

StepPlan TrainerLoop::PlanStep(int64_t step, const PolicyUpdate& policy) {
  if (step > parts_.batch.config.trainer.steps) return {.step = 0};
  StepPlan plan{.step = step, .is_evaluated = batch_.IsEvaluatedAfter(step)};
  const std::vector<int64_t> rows = batch_.BatchRows(step);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto sample = static_cast<int64_t>(i);
    const Problem& problem =
        parts_.batch.data.problems[static_cast<size_t>(rows[i])];
    for (int64_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
      const AnswerPlace place = {sample, attempt};
      const RolloutResult* known = parts_.ledger.Recall(
          step, place, problem.id, policy.version, policy.adapter.digest);
      if (known != nullptr) plan.recalled[place] = *known;
    }
  }
  parts_.metrics.RecordRecalled(static_cast<int64_t>(plan.recalled.size()));
  return plan;
}

absl::StatusOr<std::vector<RolloutRecord>> TrainerLoop::Sample(
    StepReport* report) {
  const int64_t step = policy_.version() + 1;
  RETURN_IF_ERROR(batch_.BeginStep().status());
  ASSIGN_OR_RETURN(std::vector<RolloutRecord> records, batch_.Sample(report));
  SummarizeRollouts(records, *report);
  SummarizeGrades(records, parts_.batch.config.rollout.group_size, *report);
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
  RETURN_IF_ERROR(disk_.Write("answers.jsonl", [&] {
    return parts_.recorder.RecordAnswers(report.step, records);
  }));
  DAPD_FAILPOINT("step.after_answers");
  RETURN_IF_ERROR(disk_.Write(
      "metrics.jsonl", [&] { return parts_.recorder.RecordStep(report); }));
  DAPD_FAILPOINT("step.after_metrics");
  recorded_version_ = policy_.version();
  parts_.recorder.ShowStep(report);
  return absl::OkStatus();
}

absl::Status TrainerLoop::SaveCheckpointNow() {
  const absl::Time start = SteadyNow();
  RETURN_IF_ERROR(
      SaveCheckpoint(JoinPath(parts_.recorder.folder(), "checkpoints"),
                     parts_.batch.weights->config,
                     policy_,
                     parts_.identity,
                     parts_.batch.config.checkpoint.keep,
                     Card()));
  RETURN_IF_ERROR(parts_.ledger.Reached(
      "checkpointed", policy_.version(), batch_.live_digest()));
  DAPD_FAILPOINT("checkpoint.before_export");
  RETURN_IF_ERROR(ExportAdapter());
  DAPD_FAILPOINT("checkpoint.after_export");
  saved_version_ = policy_.version();
  parts_.metrics.RecordCheckpoint(policy_.version(),
                                  absl::ToDoubleSeconds(SteadyNow() - start));
  parts_.on_saved(policy_.version());
  return absl::OkStatus();
}

absl::Status TrainerLoop::ExportAdapter() {
  const std::string folder = JoinPath(parts_.recorder.folder(), "adapter");
  RETURN_IF_ERROR(
      WriteAdapter(folder, policy_.live(), parts_.identity.base_model_path));
  RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(folder, kModelCardFile), Card()));
  exported_version_ = policy_.version();
  return absl::OkStatus();
}

std::string TrainerLoop::Card() const {
  const RunIdentity& identity = parts_.identity;
  const CardRun run{.name = parts_.batch.config.run.name,
                    .step = policy_.version(),
                    .adapter_digest = batch_.live_digest(),
                    .base_digest = identity.base_digest,
                    .data_digest = identity.data_digest,
                    .settings = identity.settings};
  return FormatModelCard(
      {.title = run.name,
       .base_model = identity.base_model_path,
       .lora = policy_.live().config,
       .training = FormatTraining(run, parts_.recorder.evaluations().all())});
}

absl::Status TrainerLoop::SaveNewest() {
  parts_.recorder.BeginPhase(TrainerPhase::kSaving);
  return disk_.MustWrite("the checkpoint", [&] { return SaveCheckpointNow(); });
}

absl::Status RunOtherRank(BatchTrainerParts parts) {
  BatchTrainer batch(std::move(parts), /*leader=*/std::nullopt);
  const auto run = [&]() -> absl::Status {
    RETURN_IF_ERROR(batch.Start());
    while (true) {
      ASSIGN_OR_RETURN(const bool begun, batch.BeginStep());
      if (!begun) return absl::OkStatus();
      StepReport report;
      RETURN_IF_ERROR(batch.Sample(&report).status());
      RETURN_IF_ERROR(batch.Train(&report));
    }
  };
  absl::Status status;
  const absl::Status caught = CatchTorch([&] { return status = run(); });
  return status.ok() ? caught : status;
}

}  // namespace dapd
