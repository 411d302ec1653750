// The Prometheus metrics of a teacher worker.
#pragma once

#include "common/metrics/metrics_registry.h"
#include "services/teacher/teacher_worker.h"

namespace dapd {

// Every series of the process, fed by the worker's observer. `registry` must
// outlive the worker.
TeacherObserver MakeTeacherMetrics(MetricsRegistry& registry);

}  // namespace dapd
