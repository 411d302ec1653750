#include "services/trainer/status/trainer_metrics.h"

#include <sys/statvfs.h>

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/config/preset_terms.h"
#include "common/config/run_folder.h"
#include "common/terms/term.h"

namespace dapd {
namespace {

constexpr char kTasks[] = "dapd_trainer_tasks_total";
constexpr char kTasksHelp[] =
    "Attempts at rollouts and scores, by role and outcome.";
constexpr char kResumes[] = "dapd_resumes_total";
constexpr char kResumesHelp[] = "Starts that resumed an earlier attempt.";
constexpr char kWriteFailures[] = "dapd_checkpoint_failures_total";
constexpr char kWriteFailuresHelp[] =
    "Failed writes of checkpoints and of the run's other files.";
constexpr char kCheckpoints[] = "dapd_checkpoint_saved_total";
constexpr char kCheckpointsHelp[] = "Checkpoints written.";
constexpr char kLastCheckpoint[] = "dapd_checkpoint_last_step";
constexpr char kLastCheckpointHelp[] =
    "Step of the newest checkpoint: where a restart would resume.";
constexpr char kSteps[] = "dapd_trainer_steps_total";
constexpr char kStepsHelp[] = "Optimizer steps taken by this process.";

// Returns the nearest existing ancestor, because a run's folder may not exist
// yet.
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
    : registry_(registry), asks_rollouts_(AsksRolloutWorkers(config)) {
  for (const Term& term : ExpandTerms(config.objective)) {
    const std::set<std::string> further = TeachersNamed({term});
    if (further.empty()) continue;
    teachers_of_terms_[term.name] = absl::StrJoin(further, ",");
  }
  // Known metrics exist from the start, so that a rate never misses its zero
  // and a dashboard is never empty.
  registry_.AddCounter(kSteps, kStepsHelp);
  for (const StepMetric& metric : StepMetrics()) {
    if (metric.kind != MetricKind::kCounter) continue;
    registry_.AddCounter(metric.prometheus, metric.help, metric.labels);
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
  BeginPhase(TrainerPhase::kStarting);
  Set("dapd_trainer_planned_steps",
      "Optimizer steps of the whole run.",
      static_cast<double>(config.trainer.steps));
  Set("dapd_trainer_gradient_norm_limit",
      "Gradient norm above which the gradient is scaled down.",
      config.trainer.max_grad_norm);
  Set("dapd_trainer_checkpoint_interval_steps",
      "Optimizer steps between two checkpoints.",
      static_cast<double>(config.checkpoint.interval));
  WatchDisk(registry_, FolderOf(config.run));
}

void TrainerMetrics::Set(const std::string& name,
                         const std::string& help,
                         double value,
                         const MetricLabels& labels) {
  registry_.AddGauge(name, help, labels).Set(value);
}

void TrainerMetrics::BeginPhase(TrainerPhase phase) {
  for (const TrainerPhaseName& known : kTrainerPhases) {
    Set("dapd_trainer_phase",
        "1 for the phase that the trainer is in, 0 for the others.",
        phase == known.phase ? 1 : 0,
        {{"phase", known.name}});
  }
}

void TrainerMetrics::RecordPolicy(int64_t version, int64_t snapshot_version) {
  Set("dapd_trainer_policy_version",
      "Policy version of the live adapter: the number of optimizer steps that "
      "led to it.",
      static_cast<double>(version));
  Record(StepMetricAt("snapshot_version"), {"", snapshot_version});
}

void TrainerMetrics::RecordServed(int64_t version) {
  if (!asks_rollouts_) return;
  Set("dapd_trainer_rollout_policy_version",
      "Policy version that the rollout workers are to serve.",
      static_cast<double>(version));
}

void TrainerMetrics::RecordStep(const StepReport& report) {
  registry_.AddCounter(kSteps, kStepsHelp).Add();
  RecordPolicy(report.step, report.snapshot_version);
  Set("dapd_trainer_last_step_timestamp_seconds",
      "When the last step ended, in seconds since the Unix epoch.",
      UnixSeconds());
  for (const StepMetric& metric : StepMetrics()) {
    for (const MetricValue& value : metric.read(report)) {
      Record(metric, value);
    }
  }
}

void TrainerMetrics::Record(const StepMetric& metric,
                            const MetricValue& value) {
  MetricLabels labels = metric.labels;
  if (metric.label() == "term") {
    labels.merge(LabelsOf(value.of));
  } else if (!value.of.empty()) {
    labels[metric.label()] = value.of;
  }
  if (metric.IsByTeacher()) labels["teacher"] = value.teacher;
  const double number = AsDouble(value.number);
  switch (metric.kind) {
    case MetricKind::kGauge:
      Set(metric.prometheus, metric.help, number, labels);
      break;
    case MetricKind::kCounter:
      registry_.AddCounter(metric.prometheus, metric.help, labels).Add(number);
      break;
    case MetricKind::kHistogram:
      registry_
          .AddHistogram(metric.prometheus,
                        metric.help,
                        StepBuckets(metric.low, metric.high),
                        labels)
          .Observe(number);
      break;
  }
}

void TrainerMetrics::RecordEvaluation(const std::string& when,
                                      const EvaluationReport& report) {
  const MetricLabels labels = {{"when", IsWithinRun(when) ? "within" : when}};
  if (report.accuracy.has_value()) {
    Set("dapd_trainer_evaluation_accuracy_ratio",
        "Share of correct answers to the held-out problems with an expected "
        "answer.",
        report.accuracy->mean,
        labels);
  }
  Set("dapd_trainer_evaluation_boxed_ratio",
      "Share of answers to the held-out problems with a boxed result.",
      report.format_rate.mean,
      labels);
  if (report.marker_rate.has_value()) {
    Set("dapd_trainer_evaluation_marker_ratio",
        "Share of answers to the held-out problems that contain "
        "evaluation.marker.",
        report.marker_rate->mean,
        labels);
  }
  if (report.truncated.has_value()) {
    Set("dapd_trainer_evaluation_truncated_ratio",
        "Share of answers to the held-out problems that hit the length limit.",
        report.truncated->mean,
        labels);
  }
  if (report.repeated.has_value()) {
    Set("dapd_trainer_evaluation_repeated_ratio",
        "Share of answers to the held-out problems that ended in a loop.",
        report.repeated->mean,
        labels);
  }
  if (report.claims.has_value()) {
    const auto set_claims = [&](const char* view, const Interval& share) {
      MetricLabels of_view = labels;
      of_view["view"] = view;
      Set("dapd_trainer_evaluation_claim_probability",
          "Probability that an answer to a held-out problem claims to know its "
          "result from memory or a reference, by view.",
          share.mean,
          of_view);
    };
    set_claims("none", report.claims->none);
    if (report.claims->cross.has_value()) {
      set_claims("cross", *report.claims->cross);
    }
  }
  for (const TermDivergence& term : report.divergences) {
    MetricLabels of_term = LabelsOf(term.name);
    of_term["when"] = labels.at("when");
    Set("dapd_trainer_evaluation_divergence",
        "True KL divergence of a term on held-out problems.",
        term.unclipped.mean,
        of_term);
  }
}

void TrainerMetrics::RecordEvaluationEnd() {
  Set("dapd_trainer_last_evaluation_timestamp_seconds",
      "When the last evaluation ended, in seconds since the Unix epoch.",
      UnixSeconds());
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
                "When the newest checkpoint was complete, in seconds since the "
                "Unix epoch.")
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

MetricLabels TrainerMetrics::LabelsOf(const std::string& term) const {
  MetricLabels labels = {{"term", term}};
  if (const auto found = teachers_of_terms_.find(term);
      found != teachers_of_terms_.end()) {
    labels["teacher"] = found->second;
  }
  return labels;
}

WorkerPoolObserver TrainerMetrics::PoolObserver(const std::string& role,
                                                const std::string& teacher) {
  MetricLabels labels = {{"role", role}};
  if (!teacher.empty()) labels["teacher"] = teacher;
  const auto with = [labels](const char* name, const std::string& value) {
    MetricLabels all = labels;
    all[name] = value;
    return all;
  };
  WorkerPoolObserver observer;
  observer.on_outcome = [this, with](TaskOutcome outcome) {
    registry_
        .AddCounter(
            kTasks, kTasksHelp, with("outcome", TaskOutcomeName(outcome)))
        .Add();
  };
  observer.on_adapter_pushed = [this, labels](double seconds, uint64_t bytes) {
    registry_
        .AddHistogram("dapd_trainer_adapter_push_duration_seconds",
                      "From the first chunk to the checked probe.",
                      StepBuckets(0.001, 10000),
                      labels)
        .Observe(seconds);
    registry_
        .AddCounter("dapd_trainer_adapter_push_bytes_total",
                    "Adapter bytes sent to workers.",
                    labels)
        .Add(static_cast<double>(bytes));
  };
  // The observer is called often, so the gauges are looked up once.
  std::map<WorkerStage, Gauge> workers;
  for (const auto& [stage, count] : PoolLoad().workers) {
    workers.emplace(stage,
                    registry_.AddGauge("dapd_trainer_workers",
                                       "Workers by role and state.",
                                       with("state", NameOf(stage))));
  }
  const Gauge pending =
      registry_.AddGauge("dapd_trainer_tasks_pending",
                         "Rollouts and scores that are waiting for a worker.",
                         labels);
  const Gauge in_flight =
      registry_.AddGauge("dapd_trainer_tasks_in_flight",
                         "Rollouts and scores that a worker is computing.",
                         labels);
  observer.on_load = [workers, pending, in_flight](const PoolLoad& load) {
    for (const auto& [stage, gauge] : workers) {
      gauge.Set(static_cast<double>(load.workers.at(stage)));
    }
    pending.Set(static_cast<double>(load.pending));
    in_flight.Set(static_cast<double>(load.in_flight));
  };
  return observer;
}

CopyObserver TrainerMetrics::MakeCopyObserver() {
  const Gauge step =
      registry_.AddGauge("dapd_checkpoint_copied_step",
                         "Step of the newest checkpoint whose copy is whole.");
  const Counter copied = registry_.AddCounter("dapd_checkpoint_copied_total",
                                              "Checkpoints copied.");
  const Histogram seconds = registry_.AddHistogram(
      "dapd_checkpoint_copy_seconds",
      "Time to copy a checkpoint, read it back and thin older copies.",
      StepBuckets(0.1, 10000));
  const Counter failed = registry_.AddCounter(
      "dapd_checkpoint_copy_failures_total", "Attempts at a copy that failed.");
  const Counter left_out = registry_.AddCounter(
      "dapd_checkpoint_copy_left_out_total",
      "Checkpoints not copied because newer ones were waiting.");
  const Counter sent = registry_.AddCounter("dapd_checkpoint_copy_bytes_total",
                                            "Bytes sent for copies.");
  return {.on_newest =
              [step](int64_t newest) { step.Set(static_cast<double>(newest)); },
          .on_copied =
              [copied, seconds](double time) {
                copied.Add();
                seconds.Observe(time);
              },
          .on_failed = [failed] { failed.Add(); },
          .on_left_out = [left_out] { left_out.Add(); },
          .on_sent =
              [sent](int64_t bytes) { sent.Add(static_cast<double>(bytes)); }};
}

GradingObserver TrainerMetrics::MakeGradingObserver() {
  const Counter graded =
      registry_.AddCounter("dapd_trainer_graded_total",
                           "Answers that the run's own grader has graded.");
  const Histogram seconds = registry_.AddHistogram(
      "dapd_trainer_grading_seconds",
      "Time from an answer to its grade, or until the grader was given up.",
      StepBuckets(0.01, 10000));
  std::map<Ungraded, Counter> ungraded;
  for (const std::string& reason : NamesOf<Ungraded>()) {
    ungraded.emplace(
        *ParseName<Ungraded>(reason),
        registry_.AddCounter("dapd_trainer_ungraded_total",
                             "Answers that the run's own grader did not grade, "
                             "by reason.",
                             {{"reason", reason}}));
  }
  return {.on_result = [graded, seconds, ungraded](const GraderResult& result,
                                                   double time) {
    seconds.Observe(time);
    (result.ungraded.has_value() ? ungraded.at(*result.ungraded) : graded)
        .Add();
  }};
}

}  // namespace dapd
