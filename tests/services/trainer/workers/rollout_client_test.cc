#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "services/trainer/workers/worker_client.h"
#include "tests/fakes/eventually.h"
#include "tests/services/trainer/workers/rollout_client_fixture.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RolloutClientTest : public RolloutClientFixture {};

TEST_F(RolloutClientTest, ABadAddressIsRefusedAtTheStart) {
  options_.addresses = {"no-port"};
  EXPECT_EQ(RolloutClient::Start(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Each answer has a second for every four tokens. With ten minutes for 38,912
// tokens, a run ended after ten attempts that were all cut off.
TEST_F(RolloutClientTest, LongAnswersHaveLonger) {
  EXPECT_EQ(AnswerTimeout(absl::Minutes(10), 1024), absl::Minutes(10));
  EXPECT_EQ(AnswerTimeout(absl::Minutes(10), 38912), absl::Seconds(9728));
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

TEST_F(RolloutClientTest, WhatSaysTheSameInstanceIsOneWorker) {
  MiniServer first(&control_, "127.0.0.1:0", "one");
  MiniServer same(&other_control_, "127.0.0.1:0", "one");
  Start({first.address(), same.address()});
  client_->Submit(MakeTask(1));
  ASSERT_TRUE(client_->Next().ok());
  ASSERT_TRUE(Eventually([&] { return client_->Workers().size() == 1; }));
  EXPECT_EQ(control_.loads + other_control_.loads, 1);
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
  ASSERT_TRUE(Eventually([&] { return control_.running == 3; }));
  server.reset();
  ASSERT_TRUE(Eventually(
      [&] { return client_->Workers().front().stage == WorkerStage::kLost; }));
  EXPECT_FALSE(client_->Workers().front().last_error.empty());
  FakeSamplerControl fresh;
  MiniServer again(&fresh, address);
  for (int i = 0; i < 3; ++i) {
    const auto result = client_->Next();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->ids, ElementsAre(10, 11, 12));
  }
  ASSERT_TRUE(Eventually([&] { return Count(TaskOutcome::kAccepted) == 3; }));
  EXPECT_EQ(Count(TaskOutcome::kLost), 3);
}

TEST_F(RolloutClientTest, AServerToldToStopFinishesItsTasksFirst) {
  control_.hold = true;
  MiniServer first(&control_, "127.0.0.1:0");
  Start({first.address()});
  client_->Submit(MakeTask(1));
  ASSERT_TRUE(Eventually([&] { return control_.running == 1; }));
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
  ASSERT_TRUE(Eventually([&] { return control_.running == 1; }));
  client_->SetPolicy(MakeUpdate(2));
  control_.hold = false;
  const auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->policy_version, 2);
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

TEST_F(RolloutClientTest, ShutdownEndsAWaitInTheMiddleOfAStream) {
  control_.hold = true;
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1));
  ASSERT_TRUE(Eventually([&] { return control_.running == 1; }));
  client_->Shutdown();
  EXPECT_EQ(client_->Next().status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(Eventually([&] { return control_.running == 0; }));
}

}  // namespace
}  // namespace dapd
