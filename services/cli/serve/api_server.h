// ApiServer: OpenAI's HTTP API over rollout workers.
//   POST /v1/chat/completions, POST /v1/completions, GET /v1/models
//   GET /health   200 if a worker can answer, 503 otherwise; for everybody
//   GET /metrics  serve_metrics.h
// Errors have OpenAI's form (api_error.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/data/text_pipeline.h"
#include "common/security/token.h"
#include "services/cli/serve/completion.h"
#include "services/cli/serve/http_listener.h"
#include "services/cli/serve/serve_metrics.h"
#include "services/cli/serve/worker_desk.h"

namespace dapd {

struct ApiOptions {
  std::string model_name;  // in /v1/models and in requests
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // a prompt and its answer must fit
  // The tokens of a chat answer whose request does not say max_tokens.
  int64_t default_tokens = 2048;
  // Requests that are answered or wait; further ones get 429.
  int64_t max_requests = 64;
  absl::Duration answer_time = absl::Minutes(10);
  absl::Duration patience = absl::Seconds(30);
  // If it is not null, every path except /health needs one of its tokens.
  std::shared_ptr<TokenTable> tokens;
  // Without tokens: see common/metrics/host_check.h.
  std::vector<std::string> allowed_hosts;
};

class ApiServer {
 public:
  // The connections that a listener needs beyond ApiOptions::max_requests: for
  // other paths, and for requests that are refused.
  static constexpr int kSpareConnections = 16;

  // `desk` and `text` must outlive the object.
  ApiServer(ApiOptions options, WorkerDesk& desk, const TextPipeline& text);

  // Sets the handlers. `listener` must end before this object.
  void AddTo(HttpListener& listener);

  // Refuses new requests (503) and waits at most `grace` for the running ones,
  // then cancels them.
  void Stop(absl::Duration grace);

 private:
  class Answering;

  httplib::Server::HandlerResponse Admit(const httplib::Request& request,
                                         httplib::Response& response);
  absl::Status CheckAccess(const httplib::Request& request) const;
  void Complete(CompletionKind kind,
                const httplib::Request& request,
                httplib::Response& response);
  absl::StatusOr<std::shared_ptr<Answering>> BeginAnswering(
      CompletionKind kind, const std::string& body);
  // Returns the prompts' tokens.
  absl::StatusOr<std::vector<std::vector<int32_t>>> Encode(
      const CompletionRequest& request) const;
  absl::StatusOr<int64_t> TokensFor(
      const CompletionRequest& request,
      const std::vector<std::vector<int32_t>>& prompts) const;
  // Returns the prompts that stand before the answers, each as a text and its
  // tokens; none without `echo`.
  absl::StatusOr<std::vector<TextPrompt>> EchoOf(
      const CompletionRequest& request,
      const std::vector<std::vector<int32_t>>& prompts) const;
  void ListModels(httplib::Response& response) const;

  const ApiOptions options_;
  WorkerDesk& desk_;
  const TextPipeline& text_;
  const int64_t started_;  // seconds since 1970
  ServeMetrics metrics_;
  Mutex mutex_;
  CondVar changed_;
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancelling_ = false;
};

}  // namespace dapd
