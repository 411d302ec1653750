// The Prometheus metrics of a rollout worker.
#pragma once

#include <cstdint>

#include "common/metrics/metrics_registry.h"
#include "services/rollout/rollout_worker.h"

namespace dapd {

// Every series of the process, fed by the worker's observer. `slots`: sequences
// decoded side by side. `registry` must outlive the worker.
RolloutObserver MakeRolloutMetrics(MetricsRegistry& registry, int64_t slots);

}  // namespace dapd
