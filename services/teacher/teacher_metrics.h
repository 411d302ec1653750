// The Prometheus metrics of a teacher worker.
#pragma once

#include "common/metrics/metrics_registry.h"
#include "services/teacher/teacher_worker.h"

namespace dapd {

// All series of the process; the worker's observer updates them. `registry`
// must outlive the worker.
TeacherObserver MakeTeacherMetrics(MetricsRegistry& registry);

}  // namespace dapd
