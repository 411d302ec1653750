// The metrics of `dapd serve`:
//   dapd_serve_requests_total{endpoint, status}   answered requests
//   dapd_serve_tokens_total{kind="prompt"|"completion"}
//   dapd_serve_running_requests                   requests answered now
//   dapd_serve_retries_total                      answers begun again
//   dapd_serve_first_token_seconds                until the first token
//   dapd_serve_request_seconds                    until the last token
#pragma once

#include <string>

#include "common/metrics/metrics_registry.h"

namespace dapd {

// Thread-safe.
class ServeMetrics {
 public:
  // `model_name` takes the place of a run's name in the label `run`.
  explicit ServeMetrics(const std::string& model_name);

  // `endpoint`: "chat" or "completions". `status`: of HTTP; for a stream that
  // ends with an error, of the error.
  void CountRequest(const std::string& endpoint, int status);

  MetricsRegistry& registry() { return registry_; }

 private:
  MetricsRegistry registry_;

 public:
  const Counter prompt_tokens;
  const Counter completion_tokens;
  const Counter retries;
  const Gauge running;
  const Histogram first_token_seconds;
  const Histogram request_seconds;
};

}  // namespace dapd
