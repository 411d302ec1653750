#include "services/trainer/trainer_metrics.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace dapd {
namespace {

constexpr char kTasks[] = "dapd_trainer_tasks_total";
constexpr char kTasksHelp[] =
    "Attempts at rollouts and scores, by role and outcome.";
constexpr char kResumes[] = "dapd_resumes_total";
constexpr char kResumesHelp[] = "Starts that went on with an earlier attempt.";
constexpr char kWriteFailures[] = "dapd_checkpoint_failures_total";
constexpr char kWriteFailuresHelp[] =
    "Failed writes of checkpoints and of the run's other files.";
constexpr char kCheckpoints[] = "dapd_checkpoint_saved_total";
constexpr char kCheckpointsHelp[] = "Checkpoints written.";
constexpr char kLastCheckpoint[] = "dapd_checkpoint_last_step";
constexpr char kLastCheckpointHelp[] =
    "Step of the newest checkpoint: where a restart would go on.";

}  // namespace

TrainerMetrics::TrainerMetrics(MetricsRegistry& registry)
    : registry_(registry) {
  RecordRecalled(0);
  SetPausedForDisk(false);
  registry_.AddCounter(kResumes, kResumesHelp);
  registry_.AddCounter(kWriteFailures, kWriteFailuresHelp);
  registry_.AddCounter(kCheckpoints, kCheckpointsHelp);
  registry_.AddCounter("dapd_trainer_steps_total", "Optimizer steps taken.");
  for (const char* role : {"rollout", "teacher"}) {
    for (const TaskOutcome outcome : {TaskOutcome::kAccepted,
                                      TaskOutcome::kDuplicate,
                                      TaskOutcome::kStale,
                                      TaskOutcome::kLost,
                                      TaskOutcome::kTimeout,
                                      TaskOutcome::kFailed,
                                      TaskOutcome::kHedged}) {
      registry_.AddCounter(
          kTasks,
          kTasksHelp,
          {{"role", role}, {"outcome", TaskOutcomeName(outcome)}});
    }
  }
}

void TrainerMetrics::RecordStep(const StepReport& report) {
  registry_.AddCounter("dapd_trainer_steps_total", "Optimizer steps taken.")
      .Add();
  registry_
      .AddGauge("dapd_trainer_policy_version",
                "Optimizer steps behind the live adapter.")
      .Set(static_cast<double>(report.step));
  registry_
      .AddGauge("dapd_trainer_snapshot_version",
                "Optimizer steps behind the snapshot.")
      .Set(static_cast<double>(report.snapshot_version));
  registry_.AddGauge("dapd_trainer_total_loss", "Weighted sum of the terms.")
      .Set(report.objective.loss);
  for (const TermMetrics& term : report.objective.terms) {
    const MetricLabels labels = {{"term", term.name}};
    registry_
        .AddGauge("dapd_trainer_loss", "Clipped divergence of a term.", labels)
        .Set(term.value);
    registry_
        .AddGauge("dapd_trainer_unclipped_divergence",
                  "True KL divergence of a term.",
                  labels)
        .Set(term.unclipped);
    registry_
        .AddGauge("dapd_trainer_clipped_ratio",
                  "Share of scored tokens with a clipped vocabulary entry.",
                  labels)
        .Set(term.clipped_fraction);
  }
  registry_
      .AddGauge("dapd_trainer_gradient_norm",
                "Global gradient norm before clipping.")
      .Set(report.optimizer.gradient_norm);
  registry_.AddGauge("dapd_trainer_learning_rate", "Rate of the last step.")
      .Set(report.optimizer.learning_rate);
  for (const auto& [phase, seconds] : report.seconds) {
    registry_
        .AddHistogram("dapd_trainer_step_duration_seconds",
                      "Time of a step by phase.",
                      StepBuckets(0.001, 1000),
                      {{"phase", phase}})
        .Observe(seconds);
  }
  registry_
      .AddCounter("dapd_trainer_generated_tokens_total",
                  "Tokens of the rollouts that were taken.")
      .Add(static_cast<double>(report.generated_tokens));
  registry_
      .AddCounter("dapd_trainer_scored_tokens_total",
                  "Tokens that the teachers scored.")
      .Add(static_cast<double>(report.scored_tokens));
  registry_
      .AddCounter("dapd_trainer_payload_bytes_total",
                  "Bytes of scores received.")
      .Add(static_cast<double>(report.payload_bytes));
  for (const auto& [outcome, count] :
       {std::pair{"trained", report.samples},
        std::pair{"empty", report.untrainable_samples}}) {
    registry_
        .AddCounter("dapd_trainer_samples_total",
                    "Samples by what became of them.",
                    {{"outcome", outcome}})
        .Add(static_cast<double>(count));
  }
  registry_
      .AddGauge("dapd_trainer_rollout_tokens",
                "Mean length of the last step's answers in tokens.")
      .Set(report.mean_rollout_tokens);
  registry_
      .AddGauge("dapd_trainer_rollout_accuracy_ratio",
                "Share of the last step's answers that are right.")
      .Set(report.correct_fraction);
}

void TrainerMetrics::RecordStart(int64_t step, bool resumed) {
  if (resumed) registry_.AddCounter(kResumes, kResumesHelp).Add();
  registry_.AddGauge(kLastCheckpoint, kLastCheckpointHelp)
      .Set(static_cast<double>(step));
}

void TrainerMetrics::RecordCheckpoint(int64_t step, double seconds) {
  registry_.AddCounter(kCheckpoints, kCheckpointsHelp).Add();
  registry_.AddGauge(kLastCheckpoint, kLastCheckpointHelp)
      .Set(static_cast<double>(step));
  registry_
      .AddGauge("dapd_checkpoint_last_saved_timestamp_seconds",
                "When the newest checkpoint was complete, in Unix time.")
      .Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  registry_
      .AddHistogram("dapd_checkpoint_seconds",
                    "Time to write, sync, read back and name a checkpoint.",
                    StepBuckets(0.01, 1000))
      .Observe(seconds);
}

void TrainerMetrics::RecordRecalled(int64_t answers) {
  registry_
      .AddCounter("dapd_trainer_recalled_answers_total",
                  "Answers taken from the ledger after a restart.")
      .Add(static_cast<double>(answers));
}

void TrainerMetrics::RecordWriteFailure() {
  registry_.AddCounter(kWriteFailures, kWriteFailuresHelp).Add();
}

void TrainerMetrics::SetPausedForDisk(bool paused) {
  registry_
      .AddGauge("dapd_trainer_paused_for_disk",
                "1 while training waits for a write to succeed.")
      .Set(paused ? 1.0 : 0.0);
}

WorkerPoolObserver TrainerMetrics::PoolObserver(const std::string& role) {
  WorkerPoolObserver observer;
  observer.on_outcome = [this, role](TaskOutcome outcome) {
    registry_
        .AddCounter(kTasks,
                    kTasksHelp,
                    {{"role", role}, {"outcome", TaskOutcomeName(outcome)}})
        .Add();
  };
  observer.on_adapter_pushed = [this, role](double seconds, uint64_t bytes) {
    registry_
        .AddHistogram("dapd_trainer_adapter_push_duration_seconds",
                      "From the first chunk to the checked probe.",
                      StepBuckets(0.001, 100),
                      {{"role", role}})
        .Observe(seconds);
    registry_
        .AddCounter("dapd_trainer_adapter_push_bytes_total",
                    "Adapter bytes sent to workers.",
                    {{"role", role}})
        .Add(static_cast<double>(bytes));
  };
  return observer;
}

}  // namespace dapd
