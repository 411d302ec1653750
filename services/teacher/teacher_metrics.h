// The Prometheus metrics of a teacher worker.
#pragma once

#include "common/metrics/metrics_registry.h"
#include "services/teacher/teacher_worker.h"

namespace dapd {

// Makes all series of the process and returns the observer that updates them.
// `registry` must outlive the worker.
TeacherObserver MakeTeacherMetrics(MetricsRegistry& registry);

}  // namespace dapd
