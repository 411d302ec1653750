#include "services/trainer/workers/teacher_client.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
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
#include "common/rpc/transfer/chunk_stream.h"
#include "common/timeline/timeline.h"
#include "services/teacher/teacher_service.h"
#include "tests/fakes/encoded_messages.h"
#include "tests/fakes/fake_scorer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHidden = 8;

WorkerDescription Description() {
  WorkerDescription description;
  description.service = "teacher";
  description.layout_digest = "layout";
  description.precision = "float32";
  description.vocab_size = 1 << 20;
  description.hidden_size = kHidden;
  description.max_positions = 1 << 17;
  description.max_in_flight = 2;
  description.max_adapter_bytes = 1 << 20;
  description.weight_sets = {kTeacherSets.begin(), kTeacherSets.end()};
  return description;
}

// A teacher server process in miniature: everything but the model is real.
class MiniServer {
 public:
  MiniServer(FakeScorerControl* control, const std::string& listen)
      : worker_(std::make_unique<FakeScorer>(control), {}) {
    service_.Attach(&worker_, Description());
    auto server = RpcServer::Start(
        {.listen = listen},
        {{&service_, v1::TeacherService::service_full_name()}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~MiniServer() {
    server_->Shutdown(absl::ZeroDuration());
    worker_.Shutdown(absl::ZeroDuration());
  }
  const std::string& address() const { return server_->address(); }

 private:
  TeacherService service_;
  TeacherWorker worker_;
  std::unique_ptr<RpcServer> server_;
};

// A worker that breaks the protocol: `score` answers each request.
class ScriptedServer final : public v1::TeacherService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>;
  using Script = std::function<void(const v1::ScoreRequest&, Stream*)>;

  // `on_stream`: called for each Score call. `end`: whether a call ends after
  // the request it has just answered.
  explicit ScriptedServer(
      Script script,
      std::function<void(grpc::ServerContext*)> on_stream = {},
      std::function<bool()> end = {})
      : script_(std::move(script)),
        on_stream_(std::move(on_stream)),
        end_(std::move(end)) {
    auto server =
        RpcServer::Start({.listen = "127.0.0.1:0"},
                         {{this, v1::TeacherService::service_full_name()}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~ScriptedServer() override { server_->Shutdown(absl::ZeroDuration()); }

  grpc::Status Describe(grpc::ServerContext*,
                        const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override {
    *response = MakeDescribeResponse(Description(), {});
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
  grpc::Status Score(grpc::ServerContext* context, Stream* stream) override {
    if (on_stream_) on_stream_(context);
    v1::ScoreRequest request;
    while (stream->Read(&request)) {
      script_(request, stream);
      if (end_ && end_()) break;
    }
    return grpc::Status::OK;
  }
  const std::string& address() const { return server_->address(); }

 private:
  const Script script_;
  const std::function<void(grpc::ServerContext*)> on_stream_;
  const std::function<bool()> end_;
  std::unique_ptr<RpcServer> server_;
};

std::shared_ptr<const PolicyUpdate> MakeUpdate(int64_t version) {
  auto update = std::make_shared<PolicyUpdate>();
  update->version = version;
  update->is_base = version == 0;
  if (!update->is_base) {
    update->adapter.tensors = std::string(100, static_cast<char>(version));
    update->adapter.config_json = "{}";
    update->adapter.digest =
        Sha256Hex(absl::StrCat(update->adapter.tensors.view(), "{}"));
  }
  update->probe_ids = {1, 2};
  update->probe_logprobs = {-1.5F};
  return update;
}

ScoreTask MakeTask(uint64_t id, int64_t tokens = 4) {
  ScoreTask task;
  task.id = id;
  for (const ViewName name : {ViewName::kNoneRollout, ViewName::kSelfRollout}) {
    View view;
    view.scored_from = 1;
    for (int64_t i = 0; i <= tokens; ++i) {
      view.input_ids.push_back(static_cast<int32_t>(100 * id + i));
    }
    view.scored_count = tokens;
    task.views[name] = view;
  }
  return task;
}

float ValueAt(const HostTensor& tensor, int64_t index) {
  return reinterpret_cast<const float*>(tensor.data.get())[index];
}

// A sound answer to the request, of which each test spoils one message.
std::vector<v1::ScoreResponse> SoundAnswer(const v1::ScoreRequest& request) {
  std::vector<v1::ScoreResponse> messages;
  for (const v1::ScoreView& view : request.views()) {
    HostTensor hidden = *HostTensor::Allocate(
        DType::kFloat32, {int64_t{view.scored_count()}, kHidden});
    std::fill_n(hidden.data.get(), hidden.num_bytes(), '\0');
    v1::ScoreResponse header;
    header.mutable_tensor()->set_view(view.name());
    *header.mutable_tensor()->mutable_header() =
        MakeTensorHeader("hidden", hidden);
    messages.push_back(header);
    for (const v1::TensorChunk& chunk :
         ChunksOf({hidden.data, hidden.bytes()})) {
      v1::ScoreResponse message;
      *message.mutable_chunk() = chunk;
      messages.push_back(message);
    }
  }
  v1::ScoreResponse done;
  done.mutable_done()->set_policy_version(request.policy_version());
  done.mutable_done()->set_adapter_digest(request.adapter_digest());
  messages.push_back(done);
  for (v1::ScoreResponse& message : messages) {
    message.set_request_id(request.request_id());
  }
  return messages;
}

class TeacherClientTest : public ::testing::Test {
 protected:
  TeacherClientTest() {
    options_.expected = {"layout", "float32", 1 << 20, kHidden};
    options_.task_timeout = absl::Seconds(30);
    options_.peer_timeout = absl::Seconds(30);
    options_.observer.on_outcome = [this](TaskOutcome outcome) {
      ++outcomes_[static_cast<int>(outcome)];
    };
  }

  void Start(const std::string& address, int64_t version = 1) {
    options_.addresses = {address};
    auto client = TeacherClient::Start(options_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    client_->SetWeights({{WeightSet::kSnapshot, MakeUpdate(version)}});
  }

  std::atomic<int> outcomes_[6] = {};
  FakeScorerControl control_;
  TeacherClientOptions options_;
  std::unique_ptr<TeacherClient> client_;
};

TEST_F(TeacherClientTest, EveryViewComesBackWithItsNumbers) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  for (uint64_t id = 1; id <= 10; ++id) client_->Submit(MakeTask(id));
  for (int n = 0; n < 10; ++n) {
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->views.size(), 2U);
    EXPECT_EQ(result->payload_bytes, 2U * 4 * kHidden * sizeof(float));
    const HostTensor& hidden =
        result->views.at(ViewName::kSelfRollout).at("hidden");
    EXPECT_EQ(hidden.shape, (std::vector<int64_t>{4, kHidden}));
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(ValueAt(hidden, i * kHidden + 3), 100 * result->id + i + 3);
    }
  }
}

TEST_F(TeacherClientTest, ATensorOfManyChunksArrivesWhole) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  const int64_t tokens = 100'000;  // 3.05 MiB a view
  client_->Submit(MakeTask(1, tokens));
  const auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  const HostTensor& hidden =
      result->views.at(ViewName::kSelfRollout).at("hidden");
  for (int64_t i = 0; i < tokens; ++i) {
    ASSERT_EQ(ValueAt(hidden, i * kHidden), static_cast<float>(100 + i));
  }
}

TEST_F(TeacherClientTest, SeveralConnectionsShareTheTasks) {
  std::mutex mutex;
  std::set<std::string> peers;
  ScriptedServer server(
      [&](const v1::ScoreRequest& request, ScriptedServer::Stream* stream) {
        for (const auto& message : SoundAnswer(request)) stream->Write(message);
      },
      [&](grpc::ServerContext* context) {
        std::scoped_lock lock(mutex);
        peers.insert(context->peer());
      });
  options_.connections = 3;
  Start(server.address());
  std::set<uint64_t> answered;
  for (uint64_t id = 1; id <= 12; ++id) client_->Submit(MakeTask(id));
  for (int n = 0; n < 12; ++n) {
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
    answered.insert(result->id);
  }
  EXPECT_EQ(answered.size(), 12U);
  std::scoped_lock lock(mutex);
  EXPECT_EQ(peers.size(), 3U);
}

// As a worker that dies: the tasks of all its streams are done again.
TEST_F(TeacherClientTest, WhenOneOfSeveralStreamsEndsAllBeginAgain) {
  std::atomic<int> streams = 0;
  std::atomic<bool> broken = false;
  ScriptedServer server(
      [&](const v1::ScoreRequest& request, ScriptedServer::Stream* stream) {
        if (request.request_id() == 5 && !broken.exchange(true)) {
          auto messages = SoundAnswer(request);
          stream->Write(messages.front());
          return;
        }
        for (const auto& message : SoundAnswer(request)) stream->Write(message);
      },
      [&](grpc::ServerContext*) { ++streams; },
      [&] { return broken && streams <= 3; });
  options_.connections = 3;
  Start(server.address());
  for (uint64_t id = 1; id <= 12; ++id) client_->Submit(MakeTask(id));
  for (int n = 0; n < 12; ++n) {
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
  }
  EXPECT_EQ(streams, 6);
}

TEST_F(TeacherClientTest, TopKBringsIdsAndLogprobs) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  ScoreTask task = MakeTask(1);
  task.payload = Payload::kTopK;
  task.top_k = 3;
  client_->Submit(std::move(task));
  const auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  const auto& tensors = result->views.at(ViewName::kNoneRollout);
  EXPECT_EQ(tensors.at("ids").dtype, DType::kInt32);
  EXPECT_EQ(tensors.at("ids").shape, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(tensors.at("logprobs").shape, (std::vector<int64_t>{4, 3}));
}

TEST_F(TeacherClientTest, SnapshotAndBaseAreToldApart) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  ScoreTask task = MakeTask(1);
  task.weights = WeightSet::kSnapshot;
  client_->Submit(task);
  auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValueAt(result->views.at(ViewName::kNoneRollout).at("hidden"), 0),
            1100);
  client_->Submit(MakeTask(1));
  result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValueAt(result->views.at(ViewName::kNoneRollout).at("hidden"), 0),
            100);
}

TEST_F(TeacherClientTest, EachSetIsScoredByItsOwnAdapter) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  const auto snapshot = MakeUpdate(1);
  int loads = 0;  // of the first round
  for (const int64_t version : {2, 3}) {
    client_->SetWeights({{WeightSet::kSnapshot, snapshot},
                         {WeightSet::kEma, MakeUpdate(version)},
                         {WeightSet::kLive, MakeUpdate(version + 10)}});
    for (const WeightSet set :
         {WeightSet::kSnapshot, WeightSet::kEma, WeightSet::kLive}) {
      ScoreTask task = MakeTask(1);
      task.weights = set;
      client_->Submit(task);
      const auto result = client_->Next();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(
          ValueAt(result->views.at(ViewName::kNoneRollout).at("hidden"), 0),
          100 + 1000 * static_cast<int>(set));
    }
    if (version == 2) loads = control_.loads;
  }
  EXPECT_EQ(control_.loads, loads + 2) << "an unchanged set is not sent again";
}

TEST_F(TeacherClientTest, AScoreOfAnOlderVersionOfItsSetIsNotTaken) {
  ScriptedServer server(
      [&](const v1::ScoreRequest& request, ScriptedServer::Stream* stream) {
        auto messages = SoundAnswer(request);
        // The digest of the snapshot, for a task of the moving average.
        messages.back().mutable_done()->set_adapter_digest(
            MakeUpdate(1)->adapter.digest);
        for (const auto& message : messages) stream->Write(message);
      });
  Start(server.address());
  client_->SetWeights({{WeightSet::kSnapshot, MakeUpdate(1)},
                       {WeightSet::kEma, MakeUpdate(2)}});
  ScoreTask task = MakeTask(1);
  task.weights = WeightSet::kEma;
  client_->Submit(task);
  while (outcomes_[static_cast<int>(TaskOutcome::kStale)] == 0) {
    absl::SleepFor(absl::Milliseconds(1));
  }
}

TEST_F(TeacherClientTest, BeforeTheFirstRefreshTheSnapshotIsTheBase) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address(), 0);
  ScoreTask task = MakeTask(1);
  task.weights = WeightSet::kSnapshot;
  client_->Submit(task);
  const auto result = client_->Next();
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST_F(TeacherClientTest, ATeacherKilledAndStartedAgainFinishesTheTasks) {
  control_.hold = true;
  auto server = std::make_unique<MiniServer>(&control_, "127.0.0.1:0");
  const std::string address = server->address();
  Start(address);
  client_->Submit(MakeTask(1));
  client_->Submit(MakeTask(2));
  while (control_.started == 0) absl::SleepFor(absl::Milliseconds(1));
  std::jthread releaser([&] {
    while (outcomes_[static_cast<int>(TaskOutcome::kLost)] < 2) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    control_.hold = false;
  });
  server.reset();
  MiniServer again(&control_, address);
  for (int i = 0; i < 2; ++i) {
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
  }
}

// The first `known` tokens of MakeTask(1, 40).
ScoreTask MakePrefix(size_t known) {
  ScoreTask task = MakeTask(1, 40);
  for (auto& [name, view] : task.views) view.input_ids.resize(known);
  return task;
}

TEST_F(TeacherClientTest, APrefixIsComputedAheadOfItsTask) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  client_->SubmitPrefix(MakePrefix(10));
  while (control_.base_ahead < 2 * 8) absl::SleepFor(absl::Milliseconds(1));
  client_->SubmitPrefix(MakePrefix(30));
  while (control_.base_ahead < 2 * 28) absl::SleepFor(absl::Milliseconds(1));
  client_->Submit(MakeTask(1, 40));
  const auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->ahead_seconds, 0);
  EXPECT_EQ(result->computed_tokens, 2 * 41);
  EXPECT_EQ(control_.base_ahead, 2 * 28);
}

TEST_F(TeacherClientTest, WhatATeacherDidIsInTheTimeline) {
  const std::string path = TempPath("timeline.json");
  Timeline timeline({.path = path, .steps = 1});
  timeline.BeginStep(1);
  options_.timeline = &timeline;
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  client_->SubmitPrefix(MakePrefix(30));
  while (control_.base_ahead < 2 * 28) absl::SleepFor(absl::Milliseconds(1));
  client_->Submit(MakeTask(1, 40));
  const auto result = client_->Next();
  client_.reset();  // before its timeline
  ASSERT_TRUE(result.ok()) << result.status();
  timeline.EndStep();
  std::map<std::string, nlohmann::json> slices;  // the last of each name
  const auto trace = nlohmann::json::parse(ReadFile(path, 1 << 20).value());
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X")
      slices[event.at("name").get<std::string>()] = event;
  }
  for (const char* name :
       {"push", "prefix news", "prefix", "score", "payload"}) {
    EXPECT_TRUE(slices.contains(name)) << name;
  }
  EXPECT_EQ(slices["payload"]["args"]["bytes"],
            static_cast<int64_t>(result->payload_bytes));
  EXPECT_EQ(slices["score"]["args"]["computed_tokens"],
            result->computed_tokens);
  EXPECT_LE(slices["prefix"]["ts"].get<int64_t>() +
                slices["prefix"]["dur"].get<int64_t>(),
            slices["score"]["ts"].get<int64_t>());
}

TEST_F(TeacherClientTest, ATeacherThatComesBackIsToldFromTheStart) {
  auto server = std::make_unique<MiniServer>(&control_, "127.0.0.1:0");
  const std::string address = server->address();
  Start(address);
  client_->SubmitPrefix(MakePrefix(30));
  while (control_.base_ahead < 2 * 28) absl::SleepFor(absl::Milliseconds(1));
  server.reset();
  control_.base_ahead = 0;
  MiniServer again(&control_, address);
  while (control_.base_ahead < 2 * 28) absl::SleepFor(absl::Milliseconds(1));
  client_->SubmitPrefix(MakePrefix(34));
  while (control_.base_ahead < 2 * 32) absl::SleepFor(absl::Milliseconds(1));
}

TEST_F(TeacherClientTest, AWithdrawnTaskIsForgotten) {
  control_.chunks_left = 1;
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  client_->SubmitPrefix(MakePrefix(30));
  while (control_.base_ahead < 4) absl::SleepFor(absl::Milliseconds(1));
  ScoreTask other = MakePrefix(30);
  other.id = 2;
  client_->SubmitPrefix(other);
  control_.chunks_left = 14;
  client_->WithdrawPrefix(1);
  while (control_.base_ahead < 4 + 2 * 28) {
    absl::SleepFor(absl::Milliseconds(1));
  }
}

TEST_F(TeacherClientTest, ABadViewFailsItsTaskWithTheReason) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  ScoreTask task = MakeTask(1);
  task.views[ViewName::kSelfRollout].scored_count = 100;
  client_->Submit(std::move(task));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("view 'self_rollout'"));
}

TEST_F(TeacherClientTest, AnswersThatBreakTheProtocolAreNotTaken) {
  using Messages = std::vector<v1::ScoreResponse>;
  struct Case {
    const char* error;  // empty: the answer is sound
    std::function<void(Messages&)> spoil;
  };
  const std::vector<Case> cases = {
      {"", [](Messages&) {}},
      {"another shape or dtype",
       [](Messages& m) {
         m[0].mutable_tensor()->mutable_header()->set_shape(0, 1 << 30);
       }},
      {"another shape or dtype",
       [](Messages& m) {
         m[0].mutable_tensor()->mutable_header()->set_dtype(
             v1::DATA_TYPE_BFLOAT16);
       }},
      {"tensor 'logits' of view 'none_rollout' was not asked for",
       [](Messages& m) {
         m[0].mutable_tensor()->mutable_header()->set_name("logits");
       }},
      {"was not asked for", [](Messages& m) { m[2] = m[0]; }},
      {"is corrupted",
       [](Messages& m) { (*m[1].mutable_chunk()->mutable_data())[5] = 1; }},
      {"chunks must come in order",
       [](Messages& m) { m[1].mutable_chunk()->set_offset(8); }},
      {"a chunk before its tensor's header",
       [](Messages& m) { m.erase(m.begin()); }},
      {"ended before its last chunk",
       [](Messages& m) { m.erase(m.begin() + 1); }},
      {"are missing", [](Messages& m) { m.erase(m.begin() + 3); }},
      {"scored by the snapshot adapter of version 9",
       [](Messages& m) { m.back().mutable_done()->set_policy_version(9); }},
      {"without content", [](Messages& m) { m[1].clear_chunk(); }},
      {"which the worker was not given",
       [](Messages& m) { m[0].set_request_id(77); }}};
  for (const Case& c : cases) {
    ScriptedServer server(
        [&](const v1::ScoreRequest& request, ScriptedServer::Stream* stream) {
          Messages messages = SoundAnswer(request);
          c.spoil(messages);
          for (const auto& message : messages) stream->Write(message);
        });
    Start(server.address());
    ScoreTask task = MakeTask(1);
    task.weights = WeightSet::kSnapshot;
    client_->Submit(std::move(task));
    if (std::string(c.error).empty()) {
      const auto result = client_->Next();
      EXPECT_TRUE(result.ok()) << result.status();
      continue;
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    std::string error;
    while (error.find(c.error) == std::string::npos && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
      const auto workers = client_->Workers();
      if (!workers.empty()) error = workers.front().last_error;
    }
    EXPECT_THAT(error, HasSubstr(c.error));
    client_.reset();
  }
}

}  // namespace
}  // namespace dapd
