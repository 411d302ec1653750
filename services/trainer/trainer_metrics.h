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
  // Feeds samples by outcome and adapter pushes of the pool of `role`
  // ("rollout" or "teacher").
  WorkerPoolObserver PoolObserver(const std::string& role);

 private:
  MetricsRegistry& registry_;
};

}  // namespace dapd
