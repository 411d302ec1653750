#include "services/trainer/workers/rollout_client.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/sha256.h"
#include "common/rpc/server/server.h"
#include "common/rpc/transfer/adapter_stream.h"
#include "common/timeline/timeline.h"
#include "services/rollout/rollout_service.h"
#include "tests/fakes/encoded_messages.h"
#include "tests/fakes/fake_sampler.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WorkerDescription Description() {
  WorkerDescription description;
  description.service = "rollout";
  description.layout_digest = "layout";
  description.precision = "float32";
  description.vocab_size = 100;
  description.hidden_size = 8;
  description.max_positions = 64;
  description.max_in_flight = 4;
  description.max_adapter_bytes = 8 << 20;
  return description;
}

// A rollout server process in miniature: everything but the model is real.
class MiniServer {
 public:
  MiniServer(FakeSamplerControl* control, const std::string& listen)
      : worker_(std::make_unique<FakeSampler>(control), {}) {
    service_.Attach(&worker_, Description());
    auto server = RpcServer::Start(
        {.listen = listen},
        {{&service_, v1::RolloutService::service_full_name()}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~MiniServer() { Stop(absl::ZeroDuration()); }

  // As main.cc does: what has ended still has to be delivered.
  void Stop(absl::Duration grace) {
    worker_.Shutdown(grace);
    server_->Shutdown(grace);
  }
  const std::string& address() const { return server_->address(); }

 private:
  RolloutService service_;
  RolloutWorker worker_;
  std::unique_ptr<RpcServer> server_;
};

// A worker that breaks the protocol: `generate` is its Generate.
class ScriptedServer final : public v1::RolloutService::Service {
 public:
  using Stream =
      grpc::ServerReaderWriter<v1::GenerateResponse, v1::GenerateRequest>;

  explicit ScriptedServer(std::function<void(Stream*)> generate)
      : generate_(std::move(generate)) {
    auto server =
        RpcServer::Start({.listen = "127.0.0.1:0"},
                         {{this, v1::RolloutService::service_full_name()}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~ScriptedServer() override { server_->Shutdown(absl::ZeroDuration()); }

  grpc::Status Describe(grpc::ServerContext*,
                        const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override {
    *response = MakeDescribeResponse(Description(), {});
    response->set_unix_ns(response->unix_ns() + clock_ahead_ns_);
    if (!version_.empty()) response->set_version(version_);
    return grpc::Status::OK;
  }
  grpc::Status LoadAdapter(grpc::ServerContext*,
                           grpc::ServerReader<v1::LoadAdapterRequest>* reader,
                           v1::LoadAdapterResponse* response) override {
    const auto upload = ReceiveAdapter(Description(), reader);
    *response = MakeLoadAdapterResponse(
        {upload->set,
         {true, upload->version, upload->adapter.digest},
         {7, {-1.5F}}});
    return grpc::Status::OK;
  }
  grpc::Status Generate(grpc::ServerContext*, Stream* stream) override {
    generate_(stream);
    return grpc::Status::OK;
  }
  const std::string& address() const { return server_->address(); }
  // Before a client connects: another than this program's.
  void SetVersion(std::string version) { version_ = std::move(version); }
  // Sets its clock, as Describe tells it.
  void SetClockAhead(absl::Duration ahead) {
    clock_ahead_ns_ = absl::ToInt64Nanoseconds(ahead);
  }

 private:
  std::string version_;
  std::atomic<int64_t> clock_ahead_ns_ = 0;
  const std::function<void(Stream*)> generate_;
  std::unique_ptr<RpcServer> server_;
};

std::shared_ptr<const PolicyUpdate> MakeUpdate(int64_t version) {
  auto update = std::make_shared<PolicyUpdate>();
  update->version = version;
  // More than one chunk.
  update->adapter.tensors =
      std::string((2 << 20) + 17, static_cast<char>('a' + version));
  update->adapter.config_json = "{}";
  update->adapter.digest =
      Sha256Hex(absl::StrCat(update->adapter.tensors.view(), "{}"));
  update->probe_ids = {1, 2};
  update->probe_logprobs = {-1.5F};
  return update;
}

RolloutTask MakeTask(uint64_t id, int64_t max_new_tokens = 3) {
  RolloutTask task;
  task.id = id;
  task.request.prompt_ids = {1, 2};
  task.request.sampling.max_new_tokens = max_new_tokens;
  return task;
}

class RolloutClientTest : public ::testing::Test {
 protected:
  RolloutClientTest() {
    options_.expected = {"layout", "float32", 100, 8};
    options_.task_timeout = absl::Seconds(30);
    options_.peer_timeout = absl::Seconds(30);
    options_.observer.on_outcome = [this](TaskOutcome outcome) {
      ++outcomes_[static_cast<int>(outcome)];
    };
    options_.observer.on_adapter_pushed = [this](double, uint64_t bytes) {
      pushed_bytes_ += bytes;
    };
  }

  void Start(std::vector<std::string> addresses) {
    options_.addresses = std::move(addresses);
    auto client = RolloutClient::Start(options_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    client_->SetPolicy(MakeUpdate(1));
  }
  int Count(TaskOutcome outcome) const {
    return outcomes_[static_cast<int>(outcome)];
  }
  static void WaitUntil(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!condition() && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    ASSERT_TRUE(condition());
  }

  std::atomic<int> outcomes_[6] = {};
  std::atomic<uint64_t> pushed_bytes_ = 0;
  FakeSamplerControl control_;
  FakeSamplerControl other_control_;
  // The slices of the timeline, which is written now.
  std::vector<nlohmann::json> EndTimeline() {
    timeline_->EndStep();
    std::vector<nlohmann::json> slices;
    const auto trace = nlohmann::json::parse(ReadFile(path_, 1 << 20).value());
    for (const nlohmann::json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") slices.push_back(event);
    }
    return slices;
  }
  void StartTimeline() {
    timeline_ = std::make_unique<Timeline>(
        Timeline::Options{.path = path_, .steps = 1});
    timeline_->BeginStep(1);
    options_.timeline = timeline_.get();
  }

  const std::string path_ = TempPath("timeline.json");
  RolloutClientOptions options_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<RolloutClient> client_;
};

TEST_F(RolloutClientTest, ABadAddressIsRefusedAtTheStart) {
  options_.addresses = {"no-port"};
  EXPECT_EQ(RolloutClient::Start(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RolloutClientTest, TasksOverTwoWorkersAllComeBack) {
  MiniServer first(&control_, "127.0.0.1:0");
  MiniServer second(&other_control_, "127.0.0.1:0");
  Start({first.address(), second.address()});
  for (uint64_t id = 0; id < 40; ++id) {
    client_->Submit(MakeTask(id, 1 + static_cast<int64_t>(id % 5)));
  }
  std::map<uint64_t, RolloutResult> results;
  for (int i = 0; i < 40; ++i) {
    auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
    results[result->id] = *result;
  }
  ASSERT_EQ(results.size(), 40U);
  const RolloutResult& four = results[3];
  EXPECT_THAT(four.ids, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(four.logprobs, ElementsAre(-0.5F, -1.0F, -1.5F, -2.0F));
  EXPECT_EQ(four.finish_reason, FinishReason::kLength);
  EXPECT_EQ(four.policy_version, 1);
  EXPECT_EQ(four.adapter_digest, MakeUpdate(1)->adapter.digest);
  EXPECT_GT(pushed_bytes_, MakeUpdate(1)->adapter.tensors.size());
}

TEST_F(RolloutClientTest, WhoListensHearsOfTokensAsTheyCome) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  Mutex mutex;
  std::map<uint64_t, std::vector<int32_t>> heard;  // guarded by mutex
  client_->Listen([&](uint64_t id, const std::vector<int32_t>& ids) {
    MutexLock lock(&mutex);
    EXPECT_GT(ids.size(), heard[id].size());
    heard[id] = ids;
  });
  client_->Submit(MakeTask(1, 50));
  client_->Submit(MakeTask(2, 50));
  for (int i = 0; i < 2; ++i) {
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
    MutexLock lock(&mutex);
    EXPECT_EQ(heard.at(result->id), result->ids);
  }
  client_->Listen(nullptr);
  client_->Submit(MakeTask(3));
  EXPECT_TRUE(client_->Next().ok());
  EXPECT_EQ(heard.size(), 2U);
}

TEST_F(RolloutClientTest, AnEndTokenIsToldFromTheLengthLimit) {
  control_.eos_after = 2;
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1, 10));
  const auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->finish_reason, FinishReason::kEos);
  EXPECT_EQ(result->ids.size(), 2U);
}

TEST_F(RolloutClientTest, AWorkerKilledAndStartedAgainFinishesTheTasks) {
  control_.hold = true;
  auto server = std::make_unique<MiniServer>(&control_, "127.0.0.1:0");
  const std::string address = server->address();
  Start({address});
  for (uint64_t id = 0; id < 3; ++id) client_->Submit(MakeTask(id));
  WaitUntil([&] { return control_.running == 3; });
  server.reset();
  WaitUntil(
      [&] { return client_->Workers().front().stage == WorkerStage::kLost; });
  EXPECT_FALSE(client_->Workers().front().last_error.empty());
  FakeSamplerControl fresh;
  MiniServer again(&fresh, address);
  for (int i = 0; i < 3; ++i) {
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->ids, ElementsAre(10, 11, 12));
  }
  WaitUntil([&] { return Count(TaskOutcome::kAccepted) == 3; });
  EXPECT_EQ(Count(TaskOutcome::kLost), 3);
}

TEST_F(RolloutClientTest, AServerToldToStopFinishesItsTasksFirst) {
  control_.hold = true;
  MiniServer first(&control_, "127.0.0.1:0");
  Start({first.address()});
  client_->Submit(MakeTask(1));
  WaitUntil([&] { return control_.running == 1; });
  std::jthread stopper([&] { first.Stop(absl::Seconds(1)); });
  absl::SleepFor(absl::Milliseconds(20));
  control_.hold = false;
  const auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Count(TaskOutcome::kLost), 0);
}

TEST_F(RolloutClientTest, ANewPolicyIsLoadedAndUsed) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  for (int64_t version = 1; version <= 3; ++version) {
    client_->SetPolicy(MakeUpdate(version));
    client_->Submit(MakeTask(static_cast<uint64_t>(version)));
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->policy_version, version);
  }
  EXPECT_EQ(control_.loads, 3);
}

TEST_F(RolloutClientTest, ATaskInFlightIsSampledAgainUnderTheNewPolicy) {
  control_.hold = true;
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1));
  WaitUntil([&] { return control_.running == 1; });
  client_->SetPolicy(MakeUpdate(2));
  control_.hold = false;
  const auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->policy_version, 2);
}

TEST_F(RolloutClientTest, AProbeMismatchNamesBothNumbers) {
  control_.probe = -9.25F;
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("-9.25"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("-1.5"));
  EXPECT_EQ(control_.running, 0);
}

TEST_F(RolloutClientTest, AWorkerWithAnotherModelIsRefused) {
  options_.expected.layout_digest = "another";
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("layout_digest"));
}

TEST_F(RolloutClientTest, APromptThatDoesNotFitFailsWithTheReason) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1, 1000));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("64 positions"));
}

TEST_F(RolloutClientTest, WhenNobodyListensTheErrorSaysWhereAndWhy) {
  options_.peer_timeout = absl::Milliseconds(500);
  std::string address;
  {
    MiniServer gone(&control_, "127.0.0.1:0");
    address = gone.address();
  }
  Start({address});
  client_->Submit(MakeTask(1));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Connection refused"));
}

TEST_F(RolloutClientTest, EveryAnswerIsInTheTimeline) {
  StartTimeline();
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  for (uint64_t id = 0; id < 12; ++id) {
    RolloutTask task = MakeTask(id);
    task.request.key = {.step = 4, .example = static_cast<uint32_t>(id)};
    client_->Submit(std::move(task));
  }
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(client_->Next().ok());
  std::map<std::string, std::set<int64_t>> examples;  // by slice
  for (const nlohmann::json& slice : EndTimeline()) {
    if (slice.at("name") == "push") continue;
    examples[slice.at("name").get<std::string>()].insert(
        slice.at("args").at("example").get<int64_t>());
    EXPECT_EQ(slice.at("args").at("step"), 5);
    EXPECT_EQ(slice.at("args").at("tokens"), 3);
  }
  EXPECT_EQ(examples["prefill"].size(), 12U);
  EXPECT_EQ(examples["sampling"].size(), 12U);
}

TEST_F(RolloutClientTest, AWorkersTimesAreReadByItsClock) {
  static constexpr absl::Duration kAhead = absl::Hours(5);
  const auto now = [] { return absl::ToUnixNanos(absl::Now() + kAhead); };
  StartTimeline();
  ScriptedServer server([&](ScriptedServer::Stream* stream) {
    v1::GenerateRequest request;
    if (!stream->Read(&request)) return;
    v1::GenerateResponse response;
    response.set_request_id(request.request_id());
    response.mutable_tokens()->add_ids(1);
    response.mutable_tokens()->add_logprobs(-1);
    stream->Write(response);
    v1::GenerationFinished& finished = *response.mutable_finished();
    finished.set_reason(v1::GenerationFinished::REASON_EOS);
    finished.set_num_tokens(1);
    finished.set_policy_version(request.policy_version());
    finished.set_adapter_digest(request.adapter_digest());
    finished.mutable_times()->set_started(now());
    finished.mutable_times()->set_first_token(now());
    finished.mutable_times()->set_ended(now());
    stream->Write(response);
    stream->Read(&request);
  });
  server.SetClockAhead(kAhead);
  const absl::Time begin = absl::Now();
  Start({server.address()});
  client_->Submit(MakeTask(1));
  ASSERT_TRUE(client_->Next().ok());
  const absl::Time end = absl::Now();
  int sampled = 0;
  for (const nlohmann::json& slice : EndTimeline()) {
    sampled += slice.at("name") == "sampling";
    const absl::Time at = absl::FromUnixMicros(slice.at("ts").get<int64_t>());
    EXPECT_GE(at, begin - absl::Seconds(1));
    EXPECT_LE(at, end + absl::Seconds(1));
  }
  EXPECT_EQ(sampled, 1);
}

TEST_F(RolloutClientTest, AWorkerOfAnotherVersionIsWarnedOfAndWorks) {
  ScriptedServer server([](ScriptedServer::Stream* stream) {
    v1::GenerateRequest request;
    while (stream->Read(&request)) {
      v1::GenerateResponse response;
      response.set_request_id(request.request_id());
      response.mutable_tokens()->add_ids(1);
      response.mutable_tokens()->add_logprobs(-1);
      stream->Write(response);
      v1::GenerationFinished& finished = *response.mutable_finished();
      finished.set_reason(v1::GenerationFinished::REASON_EOS);
      finished.set_num_tokens(1);
      finished.set_policy_version(request.policy_version());
      finished.set_adapter_digest(request.adapter_digest());
      stream->Write(response);
    }
  });
  server.SetVersion("0.0.9-old");
  testing::internal::CaptureStderr();
  Start({server.address()});
  client_->Submit(MakeTask(1));
  const bool is_answered = client_->Next().ok();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(is_answered);
  EXPECT_THAT(log,
              testing::AllOf(HasSubstr(server.address()),
                             HasSubstr("is of version 0.0.9-old")));
}

// Each script answers every task wrongly; the worker is lost with the reason.
TEST_F(RolloutClientTest, AnswersThatBreakTheProtocolAreNotTaken) {
  struct Case {
    const char* error;
    std::function<void(const v1::GenerateRequest&, v1::GenerateResponse*)> fill;
  };
  const auto finish = [](const v1::GenerateRequest& request,
                         v1::GenerateResponse* response) {
    response->mutable_finished()->set_reason(
        v1::GenerationFinished::REASON_EOS);
    response->mutable_finished()->set_policy_version(request.policy_version());
    response->mutable_finished()->set_adapter_digest(request.adapter_digest());
  };
  const std::vector<Case> cases = {
      {"of which 0 arrived",
       [&](const auto& request, auto* response) {
         finish(request, response);
         response->mutable_finished()->set_num_tokens(2);
       }},
      {"sampled by version 7",
       [&](const auto& request, auto* response) {
         finish(request, response);
         response->mutable_finished()->set_policy_version(7);
       }},
      {"(other)",
       [&](const auto& request, auto* response) {
         finish(request, response);
         response->mutable_finished()->set_adapter_digest("other");
       }},
      {"unknown reason 3",
       [&](const auto& request, auto* response) {
         finish(request, response);
         response->mutable_finished()->set_reason(
             static_cast<v1::GenerationFinished::Reason>(3));
       }},
      {"from index 1",
       [](const auto&, auto* response) {
         response->mutable_tokens()->set_first_index(1);
       }},
      {"sampled token 100",
       [](const auto&, auto* response) {
         response->mutable_tokens()->add_ids(100);
         response->mutable_tokens()->add_logprobs(-1);
       }},
      {"with 0 log-probabilities",
       [](const auto&, auto* response) {
         response->mutable_tokens()->add_ids(1);
       }},
      {"of at most 3", [](const auto&, auto* response) {
         for (int i = 0; i < 4; ++i) {
           response->mutable_tokens()->add_ids(1);
           response->mutable_tokens()->add_logprobs(-1);
         }
       }}};
  for (const Case& c : cases) {
    ScriptedServer server([&](ScriptedServer::Stream* stream) {
      v1::GenerateRequest request;
      while (stream->Read(&request)) {
        v1::GenerateResponse response;
        response.set_request_id(request.request_id());
        c.fill(request, &response);
        stream->Write(response);
      }
    });
    Start({server.address()});
    client_->Submit(MakeTask(1));
    WaitUntil([&] {
      const auto workers = client_->Workers();
      return !workers.empty() &&
             workers.front().last_error.find(c.error) != std::string::npos;
    });
    EXPECT_EQ(Count(TaskOutcome::kAccepted), 0) << c.error;
    client_.reset();
  }
}

TEST_F(RolloutClientTest, ShutdownEndsAWaitInTheMiddleOfAStream) {
  control_.hold = true;
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1));
  WaitUntil([&] { return control_.running == 1; });
  client_->Shutdown();
  EXPECT_EQ(client_->Next().status().code(), absl::StatusCode::kCancelled);
  WaitUntil([&] { return control_.running == 0; });
}

}  // namespace
}  // namespace dapd
