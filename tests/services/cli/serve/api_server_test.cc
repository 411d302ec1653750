// Asks an ApiServer by HTTP, over workers with the sampler of
// tests/fakes/fake_sampler.h, whose answer to any prompt is the tokens 10, 11,
// 12, ..., and which scores a token of a prompt by its id.
#include "services/cli/serve/api_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "services/rollout/rollout_service.h"
#include "services/rollout/rollout_worker.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/fake_sampler.h"
#include "tests/fakes/loopback_socket.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kContext = 100;

class WorkerInProcess {
 public:
  explicit WorkerInProcess(int64_t context = kContext)
      : worker_(std::make_unique<FakeSampler>(&control), {}) {
    service_.Attach(&worker_,
                    {.service = "rollout",
                     .layout_digest = "layout",
                     .precision = "float32",
                     .vocab_size = kSmallEndId + 1,
                     .hidden_size = 8,
                     .max_positions = context,
                     .max_in_flight = 2});
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~WorkerInProcess() {
    control.hold = false;
    worker_.Shutdown(absl::ZeroDuration());
    server_->Shutdown();
  }

  void Load(int64_t version, const std::string& digest) {
    AdapterUpload upload;
    upload.version = version;
    upload.adapter.digest = digest;
    upload.probe_ids = {1, 2};
    ASSERT_TRUE(worker_.Load(std::move(upload), [] { return false; }).ok());
  }

  std::shared_ptr<grpc::Channel> Channel() {
    return server_->InProcessChannel({});
  }

  FakeSamplerControl control;

 private:
  RolloutWorker worker_;
  RolloutService service_;
  std::unique_ptr<grpc::Server> server_;
};

class ApiServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = TempPath("model");
    WriteSmallTokenizer(folder);
    auto text = LoadTextPipeline(folder, {}, kSmallEndId);
    ASSERT_TRUE(text.ok()) << text.status();
    text_ = *std::move(text);
    options_.model_name = "tiny";
    options_.vocab_size = kSmallEndId + 1;
    options_.max_positions = kContext;
    workers_.push_back(std::make_unique<WorkerInProcess>());
    workers_.front()->Load(12, "0123456789abcdef");
  }

  void Start() {
    std::vector<DeskWorker> workers;
    for (const auto& worker : workers_) {
      workers.push_back(
          {absl::StrCat("worker ", workers.size()), worker->Channel()});
    }
    desk_ = std::make_unique<WorkerDesk>(
        std::move(workers),
        DeskModel{.vocab_size = kSmallEndId + 1, .hidden_size = 8});
    server_ = std::make_unique<ApiServer>(options_, *desk_, text_);
    auto listener = HttpListener::Open(std::move(listener_options_));
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    server_->AddTo(*listener_);
    listener_->Start();
  }

  void TearDown() override {
    for (const auto& worker : workers_) worker->control.hold = false;
    if (server_ != nullptr) server_->Stop(absl::ZeroDuration());
    listener_ = nullptr;
    server_ = nullptr;
    desk_ = nullptr;
    workers_.clear();
  }

  httplib::Client Client() const {
    return httplib::Client("127.0.0.1", listener_->port());
  }

  static std::string ChatBody(const std::string& more = "") {
    return absl::StrCat(
        R"({"messages": [{"role": "user", "content": "a"}])", more, "}");
  }

  httplib::Result PostChat(const std::string& body,
                           const httplib::Headers& headers = {}) const {
    return Client().Post(
        "/v1/chat/completions", headers, body, "application/json");
  }
  httplib::Result PostText(const std::string& body) const {
    return Client().Post("/v1/completions", body, "application/json");
  }

  static Json BodyOf(const httplib::Result& result) {
    if (!result) {
      ADD_FAILURE() << httplib::to_string(result.error());
      return {};
    }
    return Json::parse(result->body);
  }

  // Returns the line of the metrics that begins with `name`.
  std::string Metric(const std::string& name) const {
    const auto page = Client().Get("/metrics");
    if (!page) return "no page";
    const size_t at = page->body.find(absl::StrCat("\n", name));
    if (at == std::string::npos) return "";
    return page->body.substr(at + 1, page->body.find('\n', at + 1) - at - 1);
  }

  WorkerInProcess& worker() { return *workers_.front(); }

  TextPipeline text_;
  ApiOptions options_;
  ListenerOptions listener_options_{.listen = "127.0.0.1:0", .connections = 12};
  std::vector<std::unique_ptr<WorkerInProcess>> workers_;
  std::unique_ptr<WorkerDesk> desk_;
  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<HttpListener> listener_;
};

TEST_F(ApiServerTest, AnswersAChat) {
  Start();
  const auto result = PostChat(ChatBody(R"(, "max_tokens": 3, "n": 3)"));
  const Json body = BodyOf(result);
  ASSERT_EQ(result->status, 200) << body;
  ASSERT_EQ(body["choices"].size(), 3u);
  for (const Json& choice : body["choices"]) {
    EXPECT_EQ(choice["message"]["content"], "\n\v\f");
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], 9);
  EXPECT_EQ(body["system_fingerprint"], "policy-12-0123456789ab");
  EXPECT_EQ(result->get_header_value("X-DAPD-Policy"),
            "policy-12-0123456789ab");
}

TEST_F(ApiServerTest, LeavesTheEndTokenOut) {
  worker().control.eos_after = 3;
  Start();
  const Json body =
      BodyOf(PostText(R"({"prompt": "a", "max_tokens": 5, "logprobs": 0})"));
  EXPECT_EQ(body["choices"][0]["text"], "\n\v");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["logprobs"]["token_logprobs"],
            Json::parse("[-0.5, -1.0, -1.5]"))
      << "as in OpenAI's API, the end token has a log-probability, but no text";
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  const Json chat =
      BodyOf(PostChat(ChatBody(R"(, "max_tokens": 5, "logprobs": true)")));
  EXPECT_EQ(chat["choices"][0]["logprobs"]["content"].size(), 2u);
}

// This is the request of lm-eval for log-likelihoods.
TEST_F(ApiServerTest, ScoresPrompts) {
  Start();
  const Json body = BodyOf(PostText(
      R"({"prompt": [[97, 98, 99], [100]], "max_tokens": 1, "logprobs": 1,
          "temperature": 0, "seed": 1234, "echo": true})"));
  ASSERT_TRUE(body.contains("choices")) << body;
  EXPECT_EQ(body["choices"][0]["text"], "abc\n");
  EXPECT_EQ(body["choices"][0]["logprobs"], Json::parse(R"({
    "tokens": ["a", "b", "c", "\n"],
    "token_logprobs": [null, -98.0, -99.0, -0.5],
    "top_logprobs": [null, {"b": -98.0, "c": -1.0}, {"c": -99.0, "d": -1.0},
                     {"\n": -0.5}],
    "text_offset": [0, 1, 2, 3]})"));
  EXPECT_EQ(body["choices"][1]["logprobs"]["token_logprobs"],
            Json::parse("[null, -0.5]"));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
}

TEST_F(ApiServerTest, ScoresPromptsWithoutAnAnswer) {
  Start();
  const Json body = BodyOf(PostText(
      R"({"prompt": "ab", "max_tokens": 0, "logprobs": 1, "echo": true,
          "n": 2})"));
  ASSERT_TRUE(body.contains("choices")) << body;
  for (const Json& choice : body["choices"]) {
    EXPECT_EQ(choice["text"], "ab");
    EXPECT_EQ(choice["logprobs"]["token_logprobs"],
              Json::parse("[null, -98.0]"));
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST_F(ApiServerTest, RefusesToScoreMoreThanItsResponseMayHold) {
  options_.max_positions = 200'000;
  Start();
  const std::string prompt(150'000, 'a');
  const auto result =
      PostText(absl::StrCat(R"({"max_tokens": 0, "logprobs": 0, "echo": true,
                       "prompt": [")",
                            prompt,
                            R"(", ")",
                            prompt,
                            R"("]})"));
  EXPECT_EQ(result->status, 400);
  EXPECT_TRUE(absl::StrContains(result->body, "of 300000 tokens"))
      << result->body;
}

TEST_F(ApiServerTest, NamesAWorkerThatDoesNotScore) {
  worker().control.scores = false;
  Start();
  const auto result = PostText(
      R"({"prompt": "ab", "max_tokens": 0, "logprobs": 0, "echo": true})");
  EXPECT_EQ(result->status, 500);
  EXPECT_TRUE(absl::StrContains(result->body, "has not scored"))
      << result->body;
}

TEST_F(ApiServerTest, CancelsAnAnswerAtAStop) {
  Start();
  const Json body = BodyOf(PostText(
      R"({"prompt": "a", "max_tokens": 90, "stop": ["\u0021\u0022"]})"));
  const std::string text = body["choices"][0]["text"];
  EXPECT_TRUE(text.ends_with("\x1f ")) << text;
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  // The answer is 10, 11, ..., and the stop's second character is 34.
  EXPECT_EQ(body["usage"]["completion_tokens"], 25);
  EXPECT_TRUE(Eventually([&] { return worker().control.running == 0; }));
}

TEST_F(ApiServerTest, StreamsEachPartAndItsUsage) {
  Start();
  const auto result = PostChat(ChatBody(
      R"(, "max_tokens": 3, "stream": true,
          "stream_options": {"include_usage": true})"));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream");
  std::string text;
  std::vector<Json> events;
  for (size_t at = 0;
       (at = result->body.find("data: {", at)) != std::string::npos;) {
    const size_t end = result->body.find("\n\n", at);
    events.push_back(Json::parse(result->body.substr(at + 6, end - at - 6)));
    at = end;
  }
  for (const Json& event : events) {
    for (const Json& choice : event["choices"]) {
      text += choice["delta"].value("content", "");
    }
  }
  EXPECT_EQ(text, "\n\v\f");
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 3);
  EXPECT_TRUE(absl::EndsWith(result->body, "data: [DONE]\n\n"));
}

TEST_F(ApiServerTest, SaysInOpenAisFormWhatIsWrong) {
  Start();
  const auto wrong = PostChat(ChatBody(R"(, "n": 0)"));
  EXPECT_EQ(BodyOf(wrong)["error"]["param"], "n");
  EXPECT_EQ(BodyOf(wrong)["error"]["type"], "invalid_request_error");
  EXPECT_EQ(wrong->status, 400);
  EXPECT_EQ(PostChat(ChatBody(R"(, "model": "other")"))->status, 404);
  EXPECT_EQ(PostChat(ChatBody(R"(, "max_tokens": 100)"))->status, 400);
  EXPECT_EQ(PostText(R"({"prompt": [300]})")->status, 400);
  EXPECT_EQ(Client().Get("/v2")->status, 404);
  EXPECT_FALSE(BodyOf(Client().Get("/v2"))["error"]["message"].empty());
  EXPECT_EQ(Client().Post("/v1/completions", "prompt=a", "text/plain")->status,
            415);
  EXPECT_EQ(PostChat(ChatBody(), {{"Content-Encoding", "gzip"}})->status, 415);
}

TEST_F(ApiServerTest, ListsItsModelAndItsHealth) {
  Start();
  EXPECT_EQ(BodyOf(Client().Get("/v1/models"))["data"][0]["id"], "tiny");
  EXPECT_TRUE(
      Eventually([&] { return Client().Get("/health")->status == 200; }));
}

TEST_F(ApiServerTest, NamesEachWorkerIfNoneCanAnswer) {
  workers_.clear();
  workers_.push_back(std::make_unique<WorkerInProcess>());
  options_.patience = absl::Milliseconds(300);
  Start();
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(Client().Get("/health")->body, "its trainer");
  }));
  const auto result = PostChat(ChatBody());
  EXPECT_EQ(result->status, 503);
  EXPECT_TRUE(result->has_header("Retry-After"));
  EXPECT_TRUE(absl::StrContains(
      result->body, "worker 0: its trainer has not given it a policy yet"))
      << result->body;
  EXPECT_EQ(Client().Get("/health")->status, 503);
}

TEST_F(ApiServerTest, BeginsAgainWhenThePolicyChanges) {
  worker().control.hold = true;
  Start();
  std::thread change([&] {
    EXPECT_TRUE(Eventually([&] { return worker().control.running == 1; }));
    worker().Load(13, "fedcba9876543210");
    worker().control.hold = false;
  });
  const Json body = BodyOf(PostChat(ChatBody(R"(, "max_tokens": 3)")));
  change.join();
  EXPECT_EQ(body["system_fingerprint"], "policy-13-fedcba987654") << body;
  EXPECT_EQ(body["choices"][0]["message"]["content"], "\n\v\f");
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_EQ(Metric("dapd_serve_retries_total"),
            "dapd_serve_retries_total{run=\"tiny\"} 1");
}

TEST_F(ApiServerTest, EndsAStreamWithAnErrorWhenThePolicyChanges) {
  worker().control.hold_after = 5;
  Start();
  std::string received;
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers = {{"Content-Type", "application/json"}};
  request.body = R"({"prompt": "a", "max_tokens": 50, "stream": true})";
  request.content_receiver =
      [&](const char* data, size_t size, uint64_t, uint64_t) {
        if (received.empty()) worker().Load(13, "fedcba9876543210");
        received.append(data, size);
        return true;
      };
  auto client = Client();
  ASSERT_TRUE(client.send(request));
  EXPECT_TRUE(absl::StrContains(received, "\"text\":\"\\n"));
  EXPECT_TRUE(absl::StrContains(received, "ask again")) << received;
  EXPECT_FALSE(absl::StrContains(received, "[DONE]"));
}

TEST_F(ApiServerTest, RefusesMoreRequestsThanItTakes) {
  options_.max_requests = 2;
  worker().control.hold = true;
  Start();
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      EXPECT_EQ(PostChat(ChatBody(R"(, "max_tokens": 1)"))->status, 200);
    });
  }
  EXPECT_TRUE(Eventually([&] { return worker().control.running == 2; }));
  const auto refused = PostChat(ChatBody());
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  EXPECT_EQ(BodyOf(refused)["error"]["type"], "rate_limit_error");
  worker().control.hold = false;
  for (std::thread& client : clients) client.join();
}

TEST_F(ApiServerTest, LetsRequestsWaitForAPlace) {
  worker().control.hold = true;
  Start();
  std::vector<std::thread> clients;
  for (int i = 0; i < 5; ++i) {
    clients.emplace_back([&] {
      EXPECT_EQ(PostChat(ChatBody(R"(, "max_tokens": 2)"))->status, 200);
    });
  }
  EXPECT_TRUE(Eventually([&] {
    return Metric("dapd_serve_running_requests") ==
           "dapd_serve_running_requests{run=\"tiny\"} 5";
  }));
  EXPECT_TRUE(Eventually([&] { return worker().control.running == 2; }));
  worker().control.hold = false;
  for (std::thread& client : clients) client.join();
}

TEST_F(ApiServerTest, SpreadsRequestsOverItsWorkers) {
  workers_.push_back(std::make_unique<WorkerInProcess>());
  workers_.back()->Load(12, "0123456789abcdef");
  for (const auto& worker : workers_) worker->control.hold = true;
  Start();
  EXPECT_TRUE(Eventually([&] { return desk_->Usable().ok(); }));
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      EXPECT_EQ(PostChat(ChatBody(R"(, "max_tokens": 1)"))->status, 200);
    });
  }
  EXPECT_TRUE(Eventually([&] {
    return workers_[0]->control.running == 2 &&
           workers_[1]->control.running == 2;
  }));
  for (const auto& worker : workers_) worker->control.hold = false;
  for (std::thread& client : clients) client.join();
}

TEST_F(ApiServerTest, CancelsTheAnswersOfAClientThatLeaves) {
  worker().control.hold = true;
  Start();
  const int socket = ConnectToLoopback(listener_->port());
  const std::string body = ChatBody();
  const std::string request = absl::StrCat(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
      "application/json\r\nContent-Length: ",
      body.size(),
      "\r\n\r\n",
      body);
  ASSERT_EQ(::send(socket, request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(Eventually([&] { return worker().control.running == 1; }));
  ::close(socket);
  EXPECT_TRUE(Eventually([&] { return worker().control.cancelled == 1; }));
  EXPECT_TRUE(Eventually([&] {
    return Metric("dapd_serve_requests_total") ==
           "dapd_serve_requests_total{run=\"tiny\",endpoint=\"chat\","
           "status=\"499\"} 1";
  }));
}

TEST_F(ApiServerTest, DropsAClientThatNeverReads) {
  listener_options_.connections = 1;
  listener_options_.write_time = absl::Milliseconds(200);
  options_.max_positions = 200'000;
  workers_.front() = std::make_unique<WorkerInProcess>(200'000);
  workers_.front()->Load(12, "0123456789abcdef");
  Start();
  const int socket = ConnectToLoopback(listener_->port());
  // The answer has 100 times the prompt, more than the system's buffers hold.
  const std::string body =
      absl::StrCat(R"({"n": 100, "echo": true, "max_tokens": 1, "prompt": ")",
                   std::string(100'000, 'a'),
                   "\"}");
  const std::string request = absl::StrCat(
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
      "application/json\r\nContent-Length: ",
      body.size(),
      "\r\n\r\n",
      body);
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t count =
        ::send(socket, request.data() + sent, request.size() - sent, 0);
    ASSERT_GT(count, 0);
    sent += static_cast<size_t>(count);
  }
  // The only thread is free again, although the client keeps its connection.
  auto client = Client();
  client.set_read_timeout(60);
  const auto models = client.Get("/v1/models");
  ASSERT_TRUE(models) << httplib::to_string(models.error());
  EXPECT_EQ(models->status, 200);
  EXPECT_EQ(Metric("dapd_serve_requests_total"),
            "dapd_serve_requests_total{run=\"tiny\",endpoint=\"completions\","
            "status=\"200\"} 1");
  ::close(socket);
}

TEST_F(ApiServerTest, RefusesALongBody) {
  listener_options_.max_body_bytes = 1000;
  Start();
  const auto result =
      PostText(absl::StrCat(R"({"prompt": ")", std::string(2000, 'a'), "\"}"));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 413);
}

TEST_F(ApiServerTest, EndsARequestThatDoesNotArrive) {
  listener_options_.read_time = absl::Milliseconds(200);
  Start();
  const int socket = ConnectToLoopback(listener_->port());
  const std::string request = "POST /v1/completions HTTP/1.1\r\nHost: ";
  ASSERT_EQ(::send(socket, request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  // The server closes the connection.
  char bytes[256];
  while (::recv(socket, bytes, sizeof(bytes), 0) > 0) {
  }
  ::close(socket);
  EXPECT_EQ(BodyOf(Client().Get("/v1/models"))["object"], "list");
}

TEST_F(ApiServerTest, AsksForItsToken) {
  const std::string token(32, 't');
  const std::string path = TempPath("token");
  ASSERT_TRUE(WriteFileAtomically(path, token).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  options_.tokens =
      TokenTable::Load({{Role::kViewer, "--token-file", path}}).value();
  Start();
  EXPECT_EQ(PostChat(ChatBody())->status, 401);
  EXPECT_EQ(PostChat(ChatBody(), {{"Authorization", "Bearer " + token + "x"}})
                ->status,
            401);
  EXPECT_EQ(PostChat(ChatBody(R"(, "max_tokens": 1)"),
                     {{"Authorization", "Bearer " + token}})
                ->status,
            200);
  EXPECT_EQ(Client().Get("/metrics")->status, 401);
  EXPECT_TRUE(
      Eventually([&] { return Client().Get("/health")->status == 200; }));
}

TEST_F(ApiServerTest, AnswersOnlyToNamesOfThisMachine) {
  Start();
  EXPECT_EQ(PostChat(ChatBody(), {{"Host", "evil.example.com"}})->status, 421);
}

TEST_F(ApiServerTest, EndsOpenAnswersWhenItStops) {
  worker().control.hold = true;
  Start();
  std::thread client([&] {
    const auto result = PostChat(ChatBody());
    EXPECT_EQ(result->status, 503);
    EXPECT_TRUE(absl::StrContains(result->body, "stopping"));
  });
  EXPECT_TRUE(Eventually([&] { return worker().control.running == 1; }));
  server_->Stop(absl::Milliseconds(10));
  client.join();
  EXPECT_EQ(PostChat(ChatBody())->status, 503);
}

}  // namespace
}  // namespace dapd
