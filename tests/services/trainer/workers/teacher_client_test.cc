#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "services/trainer/workers/worker_client.h"
#include "tests/fakes/eventually.h"
#include "tests/services/trainer/workers/teacher_client_fixture.h"

namespace dapd {
namespace {

class TeacherClientTest : public TeacherClientFixture {};

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

// If a worker dies, the tasks of all its streams are done again.
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
  int loads = 0;  // in the first round
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
  EXPECT_TRUE(Eventually([&] { return control_.started != 0; }));
  std::jthread releaser([&] {
    EXPECT_TRUE(Eventually(
        [&] { return outcomes_[static_cast<int>(TaskOutcome::kLost)] >= 2; }));
    control_.hold = false;
  });
  server.reset();
  MiniServer again(&control_, address);
  for (int i = 0; i < 2; ++i) {
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
  }
}

}  // namespace
}  // namespace dapd
