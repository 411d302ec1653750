#include "services/teacher/teacher_metrics.h"

#include <string>

namespace dapd {

TeacherObserver MakeTeacherMetrics(MetricsRegistry& registry) {
  const Counter tokens =
      registry.AddCounter("dapd_teacher_scored_tokens_total", "Tokens scored.");
  const Histogram seconds =
      registry.AddHistogram("dapd_teacher_score_duration_seconds",
                            "One request: what was left of its views when it "
                            "came.",
                            StepBuckets(0.001, 100));
  const Counter bytes = registry.AddCounter("dapd_teacher_payload_bytes_total",
                                            "Bytes of scores sent.");
  const Counter ahead = registry.AddCounter(
      "dapd_teacher_prefix_tokens_total",
      "Tokens computed ahead of the request that needs them.");
  const Counter ahead_seconds = registry.AddCounter(
      "dapd_teacher_prefix_seconds_total",
      "Seconds computed ahead of requests, while rollouts were sampled.");
  const Gauge prefixes =
      registry.AddGauge("dapd_teacher_open_prefixes",
                        "Requests of which a prefix is known ahead.");
  const Counter computed =
      registry.AddCounter("dapd_teacher_view_tokens_total",
                          "Tokens of scored views, by whether their numbers "
                          "were there already.",
                          {{"source", "computed"}});
  const Counter reused =
      registry.AddCounter("dapd_teacher_view_tokens_total",
                          "Tokens of scored views, by whether their numbers "
                          "were there already.",
                          {{"source", "reused"}});
  const Gauge waiting = registry.AddGauge("dapd_teacher_requests_waiting",
                                          "Requests in the queue.");
  registry
      .AddGauge("dapd_teacher_requests_waiting_limit",
                "Requests that the queue holds.")
      .Set(static_cast<double>(kMaxQueuedCommands));
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
  observer.on_work = [computed, reused](const ScoreWork& work) {
    computed.Add(static_cast<double>(work.computed_tokens));
    reused.Add(static_cast<double>(work.reused_tokens));
  };
  observer.on_ahead = [ahead, ahead_seconds](int64_t count, double duration) {
    ahead.Add(static_cast<double>(count));
    ahead_seconds.Add(duration);
  };
  observer.on_open_prefixes = [prefixes](int64_t count) {
    prefixes.Set(static_cast<double>(count));
  };
  observer.on_payload = [bytes](uint64_t count) {
    bytes.Add(static_cast<double>(count));
  };
  observer.on_load = [waiting](int64_t count) {
    waiting.Set(static_cast<double>(count));
  };
  observer.on_policy = [&registry](WeightSet set, const ServedPolicy& policy) {
    registry
        .AddGauge("dapd_teacher_policy_version",
                  "Optimizer steps behind the weights that are served, by set.",
                  {{"weights", WeightSetName(set)}})
        .Set(static_cast<double>(policy.version));
  };
  return observer;
}

}  // namespace dapd
