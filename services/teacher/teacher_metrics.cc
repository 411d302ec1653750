#include "services/teacher/teacher_metrics.h"

#include <string>

namespace dapd {

TeacherObserver MakeTeacherMetrics(MetricsRegistry& registry) {
  const Counter tokens =
      registry.AddCounter("dapd_teacher_scored_tokens_total", "Tokens scored.");
  const Histogram seconds =
      registry.AddHistogram("dapd_teacher_score_duration_seconds",
                            "One request: the packed forward over its views.",
                            StepBuckets(0.001, 100));
  const Counter bytes = registry.AddCounter("dapd_teacher_payload_bytes_total",
                                            "Bytes of scores sent.");
  const Gauge waiting = registry.AddGauge("dapd_teacher_requests_waiting",
                                          "Requests in the queue.");
  registry
      .AddGauge("dapd_teacher_requests_waiting_limit",
                "Requests that the queue holds.")
      .Set(static_cast<double>(kMaxQueuedCommands));
  const Gauge version =
      registry.AddGauge("dapd_teacher_snapshot_version",
                        "Optimizer steps behind the snapshot that is served.");
  for (const char* outcome : {"ok", "failed"}) {
    registry.AddCounter("dapd_teacher_requests_total",
                        "Requests answered, by how they ended.",
                        {{"outcome", outcome}});
  }
  TeacherObserver observer;
  observer.on_request = [&registry](const std::string& outcome) {
    registry
        .AddCounter("dapd_teacher_requests_total",
                    "Requests answered, by how they ended.",
                    {{"outcome", outcome}})
        .Add();
  };
  observer.on_scored = [tokens, seconds](int64_t count, double duration) {
    tokens.Add(static_cast<double>(count));
    seconds.Observe(duration);
  };
  observer.on_payload = [bytes](uint64_t count) {
    bytes.Add(static_cast<double>(count));
  };
  observer.on_load = [waiting](int64_t count) {
    waiting.Set(static_cast<double>(count));
  };
  observer.on_policy = [version](const ServedPolicy& policy) {
    version.Set(static_cast<double>(policy.version));
  };
  return observer;
}

}  // namespace dapd
