#include "services/rollout/rollout_metrics.h"

#include <string>

namespace dapd {

RolloutObserver MakeRolloutMetrics(MetricsRegistry& registry) {
  const Counter tokens = registry.AddCounter(
      "dapd_rollout_generated_tokens_total", "Tokens sampled.");
  const Histogram step = registry.AddHistogram(
      "dapd_rollout_decode_step_duration_seconds",
      "One decode step over all slots, prefills of new prompts included.",
      StepBuckets(0.001, 100));
  const Gauge running = registry.AddGauge("dapd_rollout_requests_running",
                                          "Requests that are being decoded.");
  const Gauge waiting = registry.AddGauge("dapd_rollout_requests_waiting",
                                          "Requests that wait for a slot.");
  const Gauge version =
      registry.AddGauge("dapd_rollout_policy_version",
                        "Optimizer steps behind the adapter that is served.");
  // Known outcomes exist from the start, so that a rate never misses its zero.
  for (const char* outcome : {"eos", "length", "failed"}) {
    registry.AddCounter("dapd_rollout_requests_total",
                        "Requests answered, by how they ended.",
                        {{"outcome", outcome}});
  }
  RolloutObserver observer;
  observer.on_step = [tokens, step](int64_t new_tokens, double seconds) {
    tokens.Add(static_cast<double>(new_tokens));
    step.Observe(seconds);
  };
  observer.on_load = [running, waiting](int64_t run, int64_t wait) {
    running.Set(static_cast<double>(run));
    waiting.Set(static_cast<double>(wait));
  };
  observer.on_request = [&registry](const std::string& outcome) {
    registry
        .AddCounter("dapd_rollout_requests_total",
                    "Requests answered, by how they ended.",
                    {{"outcome", outcome}})
        .Add();
  };
  observer.on_policy = [version](const ServedPolicy& policy) {
    version.Set(static_cast<double>(policy.version));
  };
  return observer;
}

}  // namespace dapd
