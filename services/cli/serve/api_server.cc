#include "services/cli/serve/api_server.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/metrics/host_check.h"
#include "services/cli/serve/api_error.h"
#include "services/cli/serve/completion_body.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kJsonType = "application/json";
// OpenAI's default of /v1/completions.
constexpr int64_t kDefaultTextTokens = 16;

const char* EndpointName(CompletionKind kind) {
  return kind == CompletionKind::kChat ? "chat" : "completions";
}

void Answer(const absl::Status& error,
            int http_status,
            httplib::Response& response) {
  response.status = http_status;
  if (http_status == 401) response.set_header("WWW-Authenticate", "Bearer");
  if (http_status == 429 || http_status == 503) {
    response.set_header("Retry-After", "1");
  }
  response.set_content(ErrorBody(error).dump(), kJsonType);
}

// Answers the errors that the library finds.
void AnswerLibraryError(httplib::Response& response) {
  if (!response.body.empty()) return;
  absl::Status error = absl::InvalidArgumentError("the request is malformed");
  if (response.status == 404) {
    error = absl::NotFoundError(
        "there is no such path: POST /v1/chat/completions and /v1/completions, "
        "and GET /v1/models, /health and /metrics are served");
  } else if (response.status == 413) {
    error = absl::InvalidArgumentError("the body is too long");
  }
  Answer(error, response.status, response);
}

}  // namespace

// A request from its admission until its answer is written.
class ApiServer::Answering {
 public:
  Answering(ApiServer& server, CompletionRequest request)
      : server_(server), request(std::move(request)) {}
  ~Answering() {
    completion = nullptr;
    const ServeMetrics& metrics = server_.metrics_;
    metrics.running.Add(-1);
    metrics.request_seconds.Observe(
        absl::ToDoubleSeconds(SteadyNow() - began_));
    server_.metrics_.CountRequest(EndpointName(request.kind), http_status);
    MutexLock lock(&server_.mutex_);
    --server_.running_;
    server_.changed_.NotifyAll();
  }

  // Notes what was sampled so far.
  void Note() {
    if (!is_first_noted_ && completion->num_tokens() > 0) {
      is_first_noted_ = true;
      server_.metrics_.first_token_seconds.Observe(
          absl::ToDoubleSeconds(SteadyNow() - began_));
    }
    usage.completion_tokens = completion->num_tokens();
  }
  void NoteEnd() {
    Note();
    server_.metrics_.prompt_tokens.Add(
        static_cast<double>(usage.prompt_tokens));
    server_.metrics_.completion_tokens.Add(
        static_cast<double>(usage.completion_tokens));
    server_.metrics_.retries.Add(completion->num_retries());
  }
  absl::Status Fail(absl::Status error) {
    if (absl::IsCancelled(error) && server_.cancelling_) {
      error = absl::UnavailableError("the server is stopping");
    }
    http_status = HttpStatusOf(error);
    NoteEnd();
    return error;
  }

  // Writes the next events of a stream. Returns false if the client is gone.
  bool Write(httplib::DataSink& sink) {
    const auto send = [&](const std::string& events) {
      return sink.write(events.data(), events.size());
    };
    if (!first.has_value()) {
      auto piece = completion->Next();
      if (!piece.ok()) {
        const absl::Status error = Fail(piece.status());
        if (send(body->ErrorEvent(error))) sink.done();
        return !absl::IsCancelled(error);
      }
      first = *std::move(piece);
    }
    const CompletionPiece piece = *std::exchange(first, std::nullopt);
    std::string events = std::exchange(opening, "");
    events += body->Event(piece);
    Note();
    if (completion->done()) {
      NoteEnd();
      if (request.include_usage) events += body->UsageEvent(usage);
      events += CompletionBody::Closing();
    }
    if (!events.empty() && !send(events)) {
      http_status = HttpStatusOf(absl::CancelledError());
      if (!completion->done()) NoteEnd();
      return false;
    }
    if (completion->done()) sink.done();
    return true;
  }

 private:
  ApiServer& server_;
  const absl::Time began_ = SteadyNow();
  bool is_first_noted_ = false;

 public:
  const CompletionRequest request;
  std::unique_ptr<OpenCompletion> completion;
  std::unique_ptr<CompletionBody> body;
  CompletionUsage usage;
  int http_status = 200;
  // The first parts of a stream.
  std::string opening;
  std::optional<CompletionPiece> first;
};

ApiServer::ApiServer(ApiOptions options,
                     WorkerDesk& desk,
                     const TextPipeline& text)
    : options_(std::move(options)),
      desk_(desk),
      text_(text),
      started_(absl::ToUnixSeconds(absl::Now())),
      metrics_(options_.model_name) {}

absl::Status ApiServer::CheckAccess(const httplib::Request& request) const {
  if (options_.tokens == nullptr) {
    const std::string host = request.get_header_value("Host");
    if (IsTrustedHost(host, options_.allowed_hosts)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "this server does not answer to the name in the Host header: use an "
        "address, or allow the name by --allowed-host");
  }
  const std::string header = request.get_header_value("Authorization");
  if (request.get_header_value_count("Authorization") == 1 &&
      !options_.tokens->Find(ParseBearer(header)).empty()) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      "a token of this server is needed: send it as the API key");
}

httplib::Server::HandlerResponse ApiServer::Admit(
    const httplib::Request& request, httplib::Response& response) {
  using Result = httplib::Server::HandlerResponse;
  if (request.path == "/health") return Result::Unhandled;
  const absl::Status access = CheckAccess(request);
  if (!access.ok()) {
    constexpr int kMisdirected = 421;
    Answer(
        access, absl::IsUnauthenticated(access) ? 401 : kMisdirected, response);
    return Result::Handled;
  }
  if (request.method != "POST") return Result::Unhandled;
  // A page of another site may send a form, but no JSON, without asking first.
  const std::string type = request.get_header_value("Content-Type");
  if (!absl::StartsWithIgnoreCase(type, kJsonType) ||
      request.has_header("Content-Encoding")) {
    constexpr int kUnsupportedMediaType = 415;
    Answer(absl::InvalidArgumentError(
               "the body must be JSON that is not compressed, with "
               "Content-Type: application/json"),
           kUnsupportedMediaType,
           response);
    return Result::Handled;
  }
  return Result::Unhandled;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> ApiServer::Encode(
    const CompletionRequest& request) const {
  std::vector<std::vector<int32_t>> prompts;
  if (request.kind == CompletionKind::kChat) {
    const auto text =
        text_.chat_template->Render(request.messages, request.render);
    if (!text.ok()) {
      return ParameterError("messages", std::string(text.status().message()));
    }
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, text_.tokenizer->Encode(*text));
    prompts.push_back(std::move(ids));
    return prompts;
  }
  for (const TextPrompt& prompt : request.prompts) {
    std::vector<int32_t> ids = prompt.ids;
    if (ids.empty()) {
      ASSIGN_OR_RETURN(ids, text_.tokenizer->Encode(prompt.text));
    }
    for (const int32_t id : ids) {
      if (id < options_.vocab_size) continue;
      return ParameterError("prompt",
                            absl::StrCat("token id ",
                                         id,
                                         " is outside the vocabulary of ",
                                         options_.vocab_size));
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

absl::StatusOr<int64_t> ApiServer::TokensFor(
    const CompletionRequest& request,
    const std::vector<std::vector<int32_t>>& prompts) const {
  size_t longest = 0;
  size_t total = 0;
  for (const auto& prompt : prompts) {
    longest = std::max(longest, prompt.size());
    total += prompt.size();
    if (prompt.empty()) {
      return absl::InvalidArgumentError("the prompt has no token");
    }
  }
  if (request.ScoresPrompts() &&
      static_cast<int64_t>(total) > kMaxScoredTokens) {
    return ParameterError(
        "prompt",
        absl::StrCat("the log-probabilities of ",
                     total,
                     " tokens of prompts are asked for, at most ",
                     kMaxScoredTokens,
                     " in a request are allowed: send fewer prompts at once"));
  }
  const int64_t room = options_.max_positions - static_cast<int64_t>(longest);
  const bool is_chat = request.kind == CompletionKind::kChat;
  const int64_t wanted = request.max_tokens.value_or(std::clamp<int64_t>(
      room, 1, is_chat ? options_.default_tokens : kDefaultTextTokens));
  // Workers need room for a token even if none is wanted.
  if (std::max<int64_t>(1, wanted) <= room) return wanted;
  return ParameterError(
      is_chat ? "messages" : "prompt",
      absl::StrCat("a prompt of ",
                   longest,
                   " tokens and an answer of ",
                   wanted,
                   " do not fit the model's context of ",
                   options_.max_positions,
                   " tokens: shorten the prompt or lower max_tokens"));
}

absl::StatusOr<std::vector<TextPrompt>> ApiServer::EchoOf(
    const CompletionRequest& request,
    const std::vector<std::vector<int32_t>>& prompts) const {
  std::vector<TextPrompt> echo;
  if (!request.echo) return echo;
  for (size_t i = 0; i < prompts.size(); ++i) {
    echo.push_back({.text = request.prompts[i].text, .ids = prompts[i]});
    if (request.prompts[i].ids.empty()) continue;
    auto text = text_.tokenizer->Decode(prompts[i], false);
    if (!text.ok()) {
      return ParameterError("prompt", std::string(text.status().message()));
    }
    echo.back().text = *std::move(text);
  }
  return echo;
}

absl::StatusOr<std::shared_ptr<ApiServer::Answering>> ApiServer::BeginAnswering(
    CompletionKind kind, const std::string& body) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::UnavailableError("the server is stopping");
    if (running_ >= options_.max_requests) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ",
                       running_,
                       " requests already, as many as the server takes: ask "
                       "again later"));
    }
    ++running_;
  }
  absl::Cleanup leave = [this] {
    MutexLock lock(&mutex_);
    --running_;
    changed_.NotifyAll();
  };
  ASSIGN_OR_RETURN(CompletionRequest request,
                   ParseCompletionRequest(kind, body));
  if (!request.model.empty() && request.model != options_.model_name) {
    return absl::NotFoundError(absl::StrCat("there is no model '",
                                            request.model,
                                            "' here: '",
                                            options_.model_name,
                                            "' is served"));
  }
  ASSIGN_OR_RETURN(const std::vector<std::vector<int32_t>> prompts,
                   Encode(request));
  ASSIGN_OR_RETURN(const int64_t tokens, TokensFor(request, prompts));
  ASSIGN_OR_RETURN(std::vector<TextPrompt> echo, EchoOf(request, prompts));
  std::move(leave).Cancel();
  metrics_.running.Add(1);
  auto answering = std::make_shared<Answering>(*this, std::move(request));
  for (const auto& prompt : prompts) {
    answering->usage.prompt_tokens += static_cast<int64_t>(prompt.size());
  }
  answering->completion = std::make_unique<OpenCompletion>(
      desk_,
      *text_.tokenizer,
      answering->request,
      prompts,
      CompletionLimits{.max_new_tokens = tokens,
                       .time = options_.answer_time,
                       .patience = options_.patience},
      [this] { return cancelling_ || HttpListener::ClientHasLeft(); });
  answering->body = std::make_unique<CompletionBody>(answering->request,
                                                     *text_.tokenizer,
                                                     options_.model_name,
                                                     std::move(echo));
  return answering;
}

void ApiServer::Complete(CompletionKind kind,
                         const httplib::Request& request,
                         httplib::Response& response) {
  auto begun = BeginAnswering(kind, request.body);
  if (!begun.ok()) {
    const int http_status = HttpStatusOf(begun.status());
    Answer(begun.status(), http_status, response);
    metrics_.CountRequest(EndpointName(kind), http_status);
    return;
  }
  const std::shared_ptr<Answering> answering = *std::move(begun);
  OpenCompletion& completion = *answering->completion;
  absl::Status failure;
  std::vector<CompletionPiece> whole;
  if (answering->request.stream) {
    // Errors before the first token have a status of their own.
    auto first = completion.Next();
    failure = first.status();
    if (first.ok()) answering->first = *std::move(first);
  } else {
    auto all = completion.All();
    failure = all.status();
    if (all.ok()) whole = *std::move(all);
  }
  if (!failure.ok()) {
    failure = answering->Fail(failure);
    Answer(failure, answering->http_status, response);
    return;
  }
  answering->body->SetPolicy(completion.policy());
  response.set_header("X-DAPD-Policy", FingerprintOf(completion.policy()));
  response.set_header("Cache-Control", "no-store");
  if (answering->request.stream) {
    answering->opening = answering->body->Opening();
    response.set_chunked_content_provider(
        "text/event-stream", [answering](size_t, httplib::DataSink& sink) {
          return answering->Write(sink);
        });
    return;
  }
  answering->NoteEnd();
  response.set_content(answering->body->Whole(whole, answering->usage).dump(),
                       kJsonType);
}

void ApiServer::ListModels(httplib::Response& response) const {
  const Json model = {{"id", options_.model_name},
                      {"object", "model"},
                      {"created", started_},
                      {"owned_by", "dapd"}};
  response.set_content(
      Json{{"object", "list"}, {"data", Json::array({model})}}.dump(),
      kJsonType);
}

void ApiServer::AddTo(HttpListener& listener) {
  using httplib::Request;
  using httplib::Response;
  listener.set_default_headers({{"X-Content-Type-Options", "nosniff"}});
  listener.set_pre_routing_handler(
      [this](const Request& request, Response& response) {
        return Admit(request, response);
      });
  listener.set_error_handler(
      [](const Request&, Response& response) { AnswerLibraryError(response); });
  listener.set_exception_handler(
      [](const Request&, Response& response, std::exception_ptr thrown) {
        std::string what = "unknown";
        try {
          std::rethrow_exception(thrown);
        } catch (const std::exception& error) {
          what = error.what();
        } catch (...) {
        }
        LogError(absl::StrCat("a request failed: ", what));
        Answer(absl::InternalError("the server failed"), 500, response);
      });
  listener.Post("/v1/chat/completions",
                [this](const Request& request, Response& response) {
                  Complete(CompletionKind::kChat, request, response);
                });
  listener.Post("/v1/completions",
                [this](const Request& request, Response& response) {
                  Complete(CompletionKind::kText, request, response);
                });
  listener.Get("/v1/models", [this](const Request&, Response& response) {
    ListModels(response);
  });
  listener.Get("/health", [this](const Request&, Response& response) {
    const absl::Status usable = desk_.Usable();
    if (!usable.ok()) return Answer(usable, 503, response);
    response.set_content(R"({"status": "ok"})", kJsonType);
  });
  listener.Get("/metrics", [this](const Request&, Response& response) {
    response.set_content(metrics_.registry().Expose(),
                         "text/plain; version=0.0.4; charset=utf-8");
  });
}

void ApiServer::Stop(absl::Duration grace) {
  const absl::Time deadline = SteadyNow() + grace;
  MutexLock lock(&mutex_);
  stopping_ = true;
  while (running_ > 0) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      cancelling_ = true;
      return;
    }
    changed_.WaitFor(&mutex_, left);
  }
}

}  // namespace dapd
