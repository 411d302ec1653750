// The Prometheus metrics of the trainer.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/config/config.h"
#include "common/grader/grading_desk.h"
#include "common/metrics/metrics_registry.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "common/training/metric_table.h"
#include "services/trainer/copy/run_copier.h"
#include "services/trainer/record/evaluation_report.h"

namespace dapd {

// Thread-safe. `registry` must outlive it.
class TrainerMetrics {
 public:
  // Construct it before registry.Serve. At rank 0, which alone reports on the
  // run, sets the metrics that follow from `config`, and watches the free space
  // of the run folder, which may be a link to another disk.
  TrainerMetrics(MetricsRegistry& registry, const Config& config);

  void BeginPhase(TrainerPhase phase);
  // Records the version that is trained, and the version that the teachers get.
  void RecordPolicy(int64_t version, int64_t snapshot_version);
  // Records the version that the rollout workers serve from now on. A run
  // without rollout workers never calls this, so that no worker counts as
  // behind.
  void RecordServed(int64_t version);
  // Records a step: every row of metric_table.h, and the count of steps.
  void RecordStep(const StepReport& report);
  // Records the step at which the run starts or continues; `resumed`: an
  // earlier attempt began the run.
  void RecordStart(int64_t step, bool resumed);
  void RecordCheckpoint(int64_t step, double seconds);
  // Records the number of answers that came from the ledger instead of a
  // worker.
  void RecordRecalled(int64_t answers);
  void RecordWriteFailure();
  void SetPausedForDisk(bool paused);
  // Records an evaluation; `when` is its name. All evaluations within the run
  // are one series, "within".
  void RecordEvaluation(const std::string& when,
                        const EvaluationReport& report);
  // Notes the end of an evaluation, during which no step can end.
  void RecordEvaluationEnd();
  // Feeds outcomes, load and adapter pushes of the pool of `role` ("rollout" or
  // "teacher"). The series of a further teacher have the label `teacher`.
  WorkerPoolObserver PoolObserver(const std::string& role,
                                  const std::string& teacher = "");
  // Feeds the progress of the run's copy (checkpoint.copy_to). Its metrics
  // exist from this call on.
  CopyObserver MakeCopyObserver();
  // Feeds the results of a grader of the user's own. Its metrics exist from
  // this call on.
  GradingObserver MakeGradingObserver();

 private:
  void Set(const std::string& name,
           const std::string& help,
           double value,
           const MetricLabels& labels = {});
  // Sets the metric to this value.
  void Record(const StepMetric& metric, const MetricValue& value);

  // Returns the labels of a series of `term`: also `teacher` if the term reads
  // further teachers.
  MetricLabels LabelsOf(const std::string& term) const;

  MetricsRegistry& registry_;
  const bool asks_rollouts_;
  std::map<std::string, std::string> teachers_of_terms_;  // further ones
};

}  // namespace dapd
