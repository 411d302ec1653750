#include "services/cli/serve/serve_metrics.h"

#include "absl/strings/str_cat.h"

namespace dapd {

ServeMetrics::ServeMetrics(const std::string& model_name)
    : registry_("serve", model_name),
      prompt_tokens(registry_.AddCounter("dapd_serve_tokens_total",
                                         "Tokens of prompts and of answers",
                                         {{"kind", "prompt"}})),
      completion_tokens(registry_.AddCounter("dapd_serve_tokens_total",
                                             "Tokens of prompts and of answers",
                                             {{"kind", "completion"}})),
      retries(registry_.AddCounter(
          "dapd_serve_retries_total",
          "Answers begun again, since their worker changed or was lost")),
      running(registry_.AddGauge("dapd_serve_running_requests",
                                 "Requests that are answered or wait")),
      first_token_seconds(
          registry_.AddHistogram("dapd_serve_first_token_seconds",
                                 "Time from a request to its first token",
                                 StepBuckets(0.01, 100.0))),
      request_seconds(registry_.AddHistogram("dapd_serve_request_seconds",
                                             "Time of a whole request",
                                             StepBuckets(0.01, 1000.0))) {}

void ServeMetrics::CountRequest(const std::string& endpoint, int status) {
  registry_
      .AddCounter("dapd_serve_requests_total",
                  "Answered requests by their HTTP status",
                  {{"endpoint", endpoint}, {"status", absl::StrCat(status)}})
      .Add();
}

}  // namespace dapd
