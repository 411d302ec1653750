#include "services/teacher/teacher_metrics.h"

#include <string>

namespace dapd {
namespace {

void ObserveRequests(MetricsRegistry& registry, TeacherObserver& observer) {
  const auto requests = [&registry](const std::string& outcome) {
    return registry.AddCounter("dapd_teacher_requests_total",
                               "Requests answered, by how they ended.",
                               {{"outcome", outcome}});
  };
  for (const char* outcome : {"ok", "failed"}) requests(outcome);
  observer.on_request = [requests](const std::string& outcome) {
    requests(outcome).Add();
  };
  const Gauge waiting = registry.AddGauge("dapd_teacher_requests_waiting",
                                          "Requests in the queue.");
  registry
      .AddGauge("dapd_teacher_requests_waiting_limit",
                "Requests that the queue holds.")
      .Set(static_cast<double>(kMaxQueuedCommands));
  observer.on_load = [waiting](int64_t count) {
    waiting.Set(static_cast<double>(count));
  };
}

void ObserveScores(MetricsRegistry& registry, TeacherObserver& observer) {
  const Counter tokens =
      registry.AddCounter("dapd_teacher_scored_tokens_total", "Tokens scored.");
  const Histogram seconds = registry.AddHistogram(
      "dapd_teacher_score_duration_seconds",
      "Time to score a request: what remained of its views when it arrived.",
      StepBuckets(0.001, 10000));
  observer.on_scored = [tokens, seconds](int64_t count, double duration) {
    tokens.Add(static_cast<double>(count));
    seconds.Observe(duration);
  };
  const auto view_tokens = [&registry](const char* source) {
    return registry.AddCounter(
        "dapd_teacher_view_tokens_total",
        "Tokens of scored views, by whether they had already been computed.",
        {{"source", source}});
  };
  const Counter computed = view_tokens("computed");
  const Counter reused = view_tokens("reused");
  observer.on_work = [computed, reused](const ScoreWork& work) {
    computed.Add(static_cast<double>(work.computed_tokens));
    reused.Add(static_cast<double>(work.reused_tokens));
  };
  const Counter bytes = registry.AddCounter("dapd_teacher_payload_bytes_total",
                                            "Bytes of scores sent.");
  observer.on_payload = [bytes](uint64_t count) {
    bytes.Add(static_cast<double>(count));
  };
}

void ObservePrefixes(MetricsRegistry& registry, TeacherObserver& observer) {
  const Counter ahead = registry.AddCounter(
      "dapd_teacher_prefix_tokens_total",
      "Tokens computed ahead of the request that needs them.");
  const Counter ahead_seconds = registry.AddCounter(
      "dapd_teacher_prefix_seconds_total",
      "Seconds computed ahead of requests, while rollouts were sampled.");
  observer.on_ahead = [ahead, ahead_seconds](int64_t count, double duration) {
    ahead.Add(static_cast<double>(count));
    ahead_seconds.Add(duration);
  };
  const Gauge prefixes =
      registry.AddGauge("dapd_teacher_open_prefixes",
                        "Requests whose beginning is already known.");
  observer.on_open_prefixes = [prefixes](int64_t count) {
    prefixes.Set(static_cast<double>(count));
  };
}

void ObservePolicy(MetricsRegistry& registry, TeacherObserver& observer) {
  observer.on_policy = [&registry](WeightSet set, const ServedPolicy& policy) {
    registry
        .AddGauge("dapd_teacher_policy_version",
                  "Policy version of the weights that are served, by set: the "
                  "number of optimizer steps that led to them.",
                  {{"weights", NameOf(set)}})
        .Set(static_cast<double>(policy.version));
  };
}

}  // namespace

TeacherObserver MakeTeacherMetrics(MetricsRegistry& registry) {
  TeacherObserver observer;
  ObserveRequests(registry, observer);
  ObserveScores(registry, observer);
  ObservePrefixes(registry, observer);
  ObservePolicy(registry, observer);
  return observer;
}

}  // namespace dapd
