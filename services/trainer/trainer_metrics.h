// The Prometheus metrics of the trainer.
#pragma once

#include <string>

#include "common/metrics/metrics_registry.h"
#include "common/rpc/worker_pool_options.h"
#include "services/trainer/step_report.h"

namespace dapd {

// Thread-safe. `registry` must outlive it.
class TrainerMetrics {
 public:
  explicit TrainerMetrics(MetricsRegistry& registry);

  void RecordStep(const StepReport& report);
  // The run goes on at `step`; `resumed`: an earlier attempt began it.
  void RecordStart(int64_t step, bool resumed);
  void RecordCheckpoint(int64_t step, double seconds);
  // Answers that came from the ledger instead of a worker.
  void RecordRecalled(int64_t answers);
  void RecordWriteFailure();
  void SetPausedForDisk(bool paused);
  // Feeds samples by outcome and adapter pushes of the pool of `role`
  // ("rollout" or "teacher").
  WorkerPoolObserver PoolObserver(const std::string& role);

 private:
  MetricsRegistry& registry_;
};

}  // namespace dapd
