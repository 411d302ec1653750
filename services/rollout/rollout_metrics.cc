#include "services/rollout/rollout_metrics.h"

#include <string>

namespace dapd {

namespace {

// The buckets cover rollout.max_new_tokens, and the time that an answer of tens
// of thousands of tokens may take among other answers.
constexpr double kMostTokens = 1e6;
constexpr double kLongestSeconds = 10000;

// The metrics that a finished request changes.
struct RequestMetrics {
  Counter prompt_tokens;
  Histogram answer_tokens;
  Histogram first_token;
  Histogram duration;

  void Record(const RolloutReport& report) const {
    if (report.finish_reason == FinishReason::kNone) return;
    prompt_tokens.Add(static_cast<double>(report.prompt_tokens));
    answer_tokens.Observe(static_cast<double>(report.answer_tokens));
    first_token.Observe(report.seconds_to_first_token);
    duration.Observe(report.seconds);
  }
};

std::string OutcomeOf(FinishReason reason) {
  return reason == FinishReason::kNone ? "failed" : std::string(NameOf(reason));
}

Counter AnsweredRequests(MetricsRegistry& registry, FinishReason reason) {
  return registry.AddCounter("dapd_rollout_requests_total",
                             "Requests answered, by how they ended.",
                             {{"outcome", OutcomeOf(reason)}});
}

RequestMetrics MakeRequestMetrics(MetricsRegistry& registry) {
  return {
      .prompt_tokens = registry.AddCounter(
          "dapd_rollout_prompt_tokens_total",
          "Prompt tokens of the requests that were answered."),
      .answer_tokens = registry.AddHistogram("dapd_rollout_answer_tokens",
                                             "Length of the answers in tokens.",
                                             StepBuckets(1, kMostTokens)),
      .first_token =
          registry.AddHistogram("dapd_rollout_time_to_first_token_seconds",
                                "From a request's arrival to its first token.",
                                StepBuckets(0.001, kLongestSeconds)),
      .duration =
          registry.AddHistogram("dapd_rollout_request_duration_seconds",
                                "From a request's arrival to its last token.",
                                StepBuckets(0.001, kLongestSeconds))};
}

// The engine's report of its KV memory.
class KvMetrics {
 public:
  explicit KvMetrics(MetricsRegistry& registry)
      : used_(registry.AddGauge("dapd_rollout_kv_memory_bytes",
                                "Memory for keys and values that the answers "
                                "being decoded hold.")),
        limit_(registry.AddGauge("dapd_rollout_kv_memory_limit_bytes",
                                 "Memory for keys and values that those "
                                 "answers may hold together.")),
        restarts_(registry.AddCounter(
            "dapd_rollout_restarts_total",
            "Times that an answer gave up its memory for keys and values to "
            "older ones and nothing of it was kept.")),
        swaps_(registry.AddCounter(
            "dapd_rollout_swaps_total",
            "Times that the keys and values of an answer were moved to the "
            "host's memory.")),
        swapped_bytes_(registry.AddCounter(
            "dapd_rollout_swapped_bytes_total",
            "Keys and values that were moved to the host's memory.")),
        recomputed_(registry.AddCounter(
            "dapd_rollout_recomputed_tokens_total",
            "Tokens of answers that were computed once more, because their "
            "keys and values had been given up.")),
        host_(registry.AddGauge("dapd_rollout_swapped_kv_memory_bytes",
                                "Keys and values in the host's memory.")) {}

  void Record(const KvUse& use) {
    used_.Set(static_cast<double>(use.bytes));
    limit_.Set(static_cast<double>(use.limit_bytes));
    host_.Set(static_cast<double>(use.host_bytes));
    const auto add = [](const Counter& counter, int64_t now, int64_t known) {
      counter.Add(static_cast<double>(now - known));
    };
    add(restarts_, use.restarts, known_.restarts);
    add(swaps_, use.cost.swaps, known_.cost.swaps);
    add(swapped_bytes_, use.cost.swapped_bytes, known_.cost.swapped_bytes);
    add(recomputed_, use.cost.recomputed_tokens, known_.cost.recomputed_tokens);
    known_ = use;
  }

 private:
  Gauge used_;
  Gauge limit_;
  Counter restarts_;
  Counter swaps_;
  Counter swapped_bytes_;
  Counter recomputed_;
  Gauge host_;
  KvUse known_;  // when it was recorded last
};

}  // namespace

RolloutObserver MakeRolloutMetrics(MetricsRegistry& registry, int64_t slots) {
  const Counter tokens = registry.AddCounter(
      "dapd_rollout_generated_tokens_total", "Tokens sampled.");
  const Histogram step = registry.AddHistogram(
      "dapd_rollout_decode_step_duration_seconds",
      "One decode step over all slots, prefills of new prompts included.",
      StepBuckets(0.001, 100));
  const Gauge running = registry.AddGauge("dapd_rollout_requests_running",
                                          "Requests that are being decoded.");
  const Gauge waiting = registry.AddGauge(
      "dapd_rollout_requests_waiting", "Requests that are waiting for a slot.");
  const Gauge version =
      registry.AddGauge("dapd_rollout_policy_version",
                        "Policy version of the adapter that is served: the "
                        "number of optimizer steps that led to it.");
  registry
      .AddGauge("dapd_rollout_slots", "Requests that can be decoded at a time.")
      .Set(static_cast<double>(slots));
  registry
      .AddGauge(
          "dapd_rollout_requests_waiting_limit",
          "Requests that may wait; more are left with those who send them.")
      .Set(static_cast<double>(kMaxWaitingRequests));
  const RequestMetrics requests = MakeRequestMetrics(registry);
  // Known outcomes exist from the start, so that a rate begins at zero.
  for (const FinishReason reason :
       {FinishReason::kEos, FinishReason::kLength, FinishReason::kNone}) {
    AnsweredRequests(registry, reason);
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
  observer.on_kv_use = [kv = KvMetrics(registry)](const KvUse& use) mutable {
    kv.Record(use);
  };
  observer.on_request = [&registry, requests](const RolloutReport& report) {
    AnsweredRequests(registry, report.finish_reason).Add();
    requests.Record(report);
  };
  observer.on_policy = [version](const ServedPolicy& policy) {
    version.Set(static_cast<double>(policy.version));
  };
  return observer;
}

}  // namespace dapd
