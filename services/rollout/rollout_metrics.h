// The Prometheus metrics of a rollout worker.
#pragma once

#include <cstdint>

#include "common/metrics/metrics_registry.h"
#include "services/rollout/rollout_worker.h"

namespace dapd {

// Makes all series of the process and returns the observer that updates them.
// `slots`: sequences that are decoded at the same time. `registry` must outlive
// the worker.
RolloutObserver MakeRolloutMetrics(MetricsRegistry& registry, int64_t slots);

}  // namespace dapd
