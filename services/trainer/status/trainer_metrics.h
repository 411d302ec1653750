// The Prometheus metrics of the trainer.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config.h"
#include "common/metrics/metrics_registry.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "common/training/metric_table.h"
#include "services/trainer/copy/run_copier.h"
#include "services/trainer/record/evaluation_report.h"

namespace dapd {

// Thread-safe. `registry` must outlive it.
class TrainerMetrics {
 public:
  // Before registry.Serve. At rank 0, the only one that speaks for the run:
  // sets what `config` decides once and for all, and follows the free space of
  // the run folder, which may be a link to another disk.
  TrainerMetrics(MetricsRegistry& registry, const Config& config);

  void BeginPhase(TrainerPhase phase);
  // The versions that are trained, and that the teachers are to serve.
  void RecordPolicy(int64_t version, int64_t snapshot_version);
  // The version that the rollout workers are to serve from now on. Nothing of
  // a run that asks nothing of them: none of those that are up is behind.
  void RecordServed(int64_t version);
  // Every row of metric_table.h, and that a step was taken.
  void RecordStep(const StepReport& report);
  // The run goes on at `step`; `resumed`: an earlier attempt began it.
  void RecordStart(int64_t step, bool resumed);
  void RecordCheckpoint(int64_t step, double seconds);
  // Answers that came from the ledger instead of a worker.
  void RecordRecalled(int64_t answers);
  void RecordWriteFailure();
  void SetPausedForDisk(bool paused);
  // `when`: its name. All those within the run are one series, "within".
  void RecordEvaluation(const std::string& when,
                        const EvaluationReport& report);
  // An evaluation ends now, during which no step could.
  void RecordEvaluationEnd();
  // Feeds outcomes, load and adapter pushes of the pool of `role` ("rollout" or
  // "teacher").
  WorkerPoolObserver PoolObserver(const std::string& role);
  // Feeds how far the copy of the run is (checkpoint.copy_to). The metrics are
  // there from this call on.
  CopyObserver MakeCopyObserver();

 private:
  void Set(const std::string& name,
           const std::string& help,
           double value,
           const MetricLabels& labels = {});
  // Brings one value of a metric in.
  void Record(const StepMetric& metric, const MetricValue& value);

  MetricsRegistry& registry_;
  const bool asks_rollouts_;
};

}  // namespace dapd
