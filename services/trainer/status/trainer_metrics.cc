#include "services/trainer/status/trainer_metrics.h"

#include <sys/statvfs.h>

#include <filesystem>
#include <map>
#include <utility>

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
constexpr char kSteps[] = "dapd_trainer_steps_total";
constexpr char kStepsHelp[] = "Optimizer steps taken by this process.";
constexpr char kSamples[] = "dapd_trainer_samples_total";
constexpr char kSamplesHelp[] = "Samples by what became of them.";

// A run's folder may not exist yet: its nearest ancestor that does.
std::string ExistingFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(folder, error) &&
         folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  return folder;
}

// Keeps the size and free bytes of the file system that holds `path` current.
void WatchDisk(MetricsRegistry& registry, const std::string& path) {
  const Gauge size =
      registry.AddGauge("dapd_trainer_disk_size_bytes",
                        "Size of the file system that holds the run folder.");
  const Gauge free = registry.AddGauge(
      "dapd_trainer_disk_free_bytes",
      "Bytes that the trainer may still write to that file system.");
  registry.OnExpose([size, free, path] {
    struct statvfs disk = {};
    if (::statvfs(ExistingFolder(path).c_str(), &disk) != 0) return;
    size.Set(static_cast<double>(disk.f_blocks) *
             static_cast<double>(disk.f_frsize));
    free.Set(static_cast<double>(disk.f_bavail) *
             static_cast<double>(disk.f_frsize));
  });
}

double UnixSeconds() {
  return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
}

}  // namespace

TrainerMetrics::TrainerMetrics(MetricsRegistry& registry, const Config& config)
    : registry_(registry) {
  // What is known exists from the start, so that a rate never misses its zero
  // and a dashboard is never empty.
  registry_.AddCounter(kSteps, kStepsHelp);
  for (const char* outcome : {"trained", "empty"}) {
    registry_.AddCounter(kSamples, kSamplesHelp, {{"outcome", outcome}});
  }
  RecordRecalled(0);
  SetPausedForDisk(false);
  registry_.AddCounter(kResumes, kResumesHelp);
  registry_.AddCounter(kWriteFailures, kWriteFailuresHelp);
  registry_.AddCounter(kCheckpoints, kCheckpointsHelp);
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
  if (config.trainer.rank != 0) return;
  BeginPhase("starting");
  Set("dapd_trainer_planned_steps",
      "Optimizer steps of the whole run.",
      static_cast<double>(config.trainer.steps));
  Set("dapd_trainer_gradient_norm_limit",
      "Gradient norm above which the gradient is scaled down.",
      config.trainer.max_grad_norm);
  Set("dapd_trainer_checkpoint_interval_steps",
      "Optimizer steps between two checkpoints.",
      static_cast<double>(config.checkpoint.interval));
  WatchDisk(registry_, config.run.output_dir);
}

void TrainerMetrics::Set(const std::string& name,
                         const std::string& help,
                         double value,
                         const MetricLabels& labels) {
  registry_.AddGauge(name, help, labels).Set(value);
}

void TrainerMetrics::BeginPhase(const std::string& phase) {
  for (const char* known : kTrainerPhases) {
    Set("dapd_trainer_phase",
        "1 for what the trainer is doing, 0 for the rest.",
        phase == known ? 1 : 0,
        {{"phase", known}});
  }
}

void TrainerMetrics::RecordPolicy(int64_t version, int64_t snapshot_version) {
  Set("dapd_trainer_policy_version",
      "Optimizer steps behind the live adapter.",
      static_cast<double>(version));
  Set("dapd_trainer_snapshot_version",
      "Optimizer steps behind the snapshot.",
      static_cast<double>(snapshot_version));
}

void TrainerMetrics::RecordServed(int64_t version) {
  Set("dapd_trainer_rollout_policy_version",
      "Optimizer steps behind the adapter that the rollout workers are to "
      "serve.",
      static_cast<double>(version));
}

void TrainerMetrics::RecordStep(const StepReport& report) {
  registry_.AddCounter(kSteps, kStepsHelp).Add();
  RecordPolicy(report.step, report.snapshot_version);
  Set("dapd_trainer_last_step_timestamp_seconds",
      "End of the last step since the Unix epoch in seconds.",
      UnixSeconds());
  Set("dapd_trainer_total_loss",
      "Weighted sum of the terms.",
      report.objective.loss);
  for (const TermMetrics& term : report.objective.terms) {
    const MetricLabels labels = {{"term", term.name}};
    Set("dapd_trainer_loss",
        "Clipped divergence of a term.",
        term.value,
        labels);
    Set("dapd_trainer_unclipped_divergence",
        "True KL divergence of a term.",
        term.unclipped,
        labels);
    Set("dapd_trainer_clipped_ratio",
        "Share of scored tokens with a clipped vocabulary entry.",
        term.clipped_fraction,
        labels);
  }
  Set("dapd_trainer_gradient_norm",
      "Global gradient norm before clipping.",
      report.optimizer.gradient_norm);
  Set("dapd_trainer_learning_rate",
      "Rate of the last step.",
      report.optimizer.learning_rate);
  double whole_step = 0.0;
  for (const auto& [phase, seconds] : report.seconds) {
    whole_step += seconds;
    registry_
        .AddHistogram("dapd_trainer_step_duration_seconds",
                      "Time of a step by phase.",
                      StepBuckets(0.001, 1000),
                      {{"phase", phase}})
        .Observe(seconds);
  }
  registry_
      .AddHistogram("dapd_trainer_step_seconds",
                    "Time of a step, all phases together.",
                    StepBuckets(0.001, 10000))
      .Observe(whole_step);
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
  registry_
      .AddCounter("dapd_trainer_gather_wait_seconds_total",
                  "Seconds that training at rank 0 waited for layers of the "
                  "base that other ranks hold (trainer.shard_base).")
      .Add(report.gather_wait_seconds);
  for (const auto& [when, seconds] :
       {std::pair{"ahead", report.teacher_ahead_seconds},
        std::pair{"after", report.teacher_seconds}}) {
    registry_
        .AddCounter("dapd_trainer_teacher_seconds_total",
                    "Seconds that teachers computed for the scores taken: "
                    "ahead of an answer's last token, or after it.",
                    {{"when", when}})
        .Add(seconds);
  }
  for (const auto& [outcome, count] :
       {std::pair{"trained", report.samples},
        std::pair{"empty", report.untrainable_samples}}) {
    registry_.AddCounter(kSamples, kSamplesHelp, {{"outcome", outcome}})
        .Add(static_cast<double>(count));
  }
  Set("dapd_trainer_rollout_tokens",
      "Mean length of the last step's answers in tokens.",
      report.mean_rollout_tokens);
  Set("dapd_trainer_rollout_truncated_ratio",
      "Share of the last step's answers that hit the length limit.",
      report.truncated_fraction);
  Set("dapd_trainer_rollout_boxed_ratio",
      "Share of the last step's answers with a boxed result.",
      report.boxed_fraction);
  Set("dapd_trainer_rollout_accuracy_ratio",
      "Share of the last step's answers that are right.",
      report.correct_fraction);
}

void TrainerMetrics::RecordEvaluation(const std::string& when,
                                      const EvaluationReport& report) {
  const MetricLabels labels = {{"when", when}};
  Set("dapd_trainer_evaluation_accuracy_ratio",
      "Share of right answers to the held-out problems.",
      report.accuracy.mean,
      labels);
  Set("dapd_trainer_evaluation_boxed_ratio",
      "Share of answers to the held-out problems with a boxed result.",
      report.format_rate.mean,
      labels);
  for (const TermDivergence& term : report.divergences) {
    Set("dapd_trainer_evaluation_divergence",
        "True KL divergence of a term on held-out problems.",
        term.unclipped.mean,
        {{"when", when}, {"term", term.name}});
  }
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
      .Set(UnixSeconds());
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
  // Called often: the gauges are looked up once.
  std::map<std::string, Gauge> workers;
  for (const auto& [state, count] : PoolLoad().workers) {
    workers.emplace(state,
                    registry_.AddGauge("dapd_trainer_workers",
                                       "Workers by role and state.",
                                       {{"role", role}, {"state", state}}));
  }
  const Gauge pending =
      registry_.AddGauge("dapd_trainer_tasks_pending",
                         "Rollouts and scores that wait for a worker.",
                         {{"role", role}});
  const Gauge in_flight =
      registry_.AddGauge("dapd_trainer_tasks_in_flight",
                         "Rollouts and scores that a worker has.",
                         {{"role", role}});
  observer.on_load = [workers, pending, in_flight](const PoolLoad& load) {
    for (const auto& [state, gauge] : workers) {
      gauge.Set(static_cast<double>(load.workers.at(state)));
    }
    pending.Set(static_cast<double>(load.pending));
    in_flight.Set(static_cast<double>(load.in_flight));
  };
  return observer;
}

}  // namespace dapd
