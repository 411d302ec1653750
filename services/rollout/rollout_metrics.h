// The Prometheus metrics of a rollout worker.
#pragma once

#include <memory>

#include "common/metrics/metrics_registry.h"
#include "services/rollout/rollout_worker.h"

namespace dapd {

// Every series of the process, fed by the worker's observer. `registry` must
// outlive the worker.
RolloutObserver MakeRolloutMetrics(MetricsRegistry& registry);

}  // namespace dapd
