#include "common/generation/backend_relay.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/status_error.h"
#include "common/generation/aten/aten_backend.h"
#include "common/generation/decode_request_message.h"
#include "dapd/v1/rank.pb.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/random_shards.h"
#include "tests/fakes/thread_ranks.h"

namespace dapd {
namespace {

DecodeRequest Request(int64_t prompt, uint32_t sample) {
  return {.prompt_ids = RandomModelIds(prompt, sample),
          .sampling = {.temperature = 1.1,
                       .top_k = 20,
                       .top_p = 0.95,
                       .max_new_tokens = 12},
          .key = {.seed = 5, .sample = sample}};
}

// Answers that come, go and are broken off, and scores under two adapters.
struct Outcome {
  std::vector<std::vector<int64_t>> tokens;  // slot and token
  std::vector<float> logprobs;
};

Outcome Use(DecodeBackend& backend) {
  Outcome outcome;
  const auto step = [&](int times) {
    for (int i = 0; i < times; ++i) {
      for (const DecodedToken& token : backend.Step()) {
        outcome.tokens.push_back({token.slot, token.token});
        outcome.logprobs.push_back(token.logprob);
      }
    }
  };
  const auto score = [&] {
    for (const float each : backend.ScoreTokens(RandomModelIds(9, 8))) {
      outcome.logprobs.push_back(each);
    }
  };
  score();
  backend.SetAdapter(
      std::make_shared<const Adapter>(TrainedAdapter(backend.config())));
  score();
  backend.Start(0, Request(7, 1));
  step(3);
  backend.Start(2, Request(4, 2));
  step(4);
  backend.Stop(0);
  backend.Start(1, Request(5, 3));
  step(3);
  backend.Stop(1);
  backend.Stop(2);
  backend.SetAdapter(nullptr);
  score();
  return outcome;
}

TEST(BackendRelayTest, RanksTogetherDecodeWhatTheWholeModelDoes) {
  const auto whole = MakeRandomModel("qwen3");
  AtenBackend alone(DecoderModel(whole), 3, 0);
  const Outcome expected = Use(alone);
  ASSERT_GT(expected.tokens.size(), 10U);
  RunThreadRanks(2, [&](Collective& collective) {
    auto own = std::make_unique<AtenBackend>(
        DecoderModel(
            *ShardModel(*whole, {collective.rank(), collective.size()}),
            DeviceGroup::Join(collective, at::kCPU, 1).value()),
        3,
        0);
    EXPECT_LT(own->KvBytes(64), alone.KvBytes(64));
    if (collective.rank() != 0) {
      const absl::Status status = FollowBackend(*own, at::kCPU, collective);
      EXPECT_TRUE(status.ok()) << status;
      return;
    }
    const auto leader = LeadBackend(
        std::move(own), collective, [](const absl::Status&) { FAIL(); });
    const Outcome found = Use(*leader);
    EXPECT_EQ(found.tokens, expected.tokens);
    ASSERT_EQ(found.logprobs.size(), expected.logprobs.size());
    float worst = 0.0F;
    for (size_t i = 0; i < found.logprobs.size(); ++i) {
      worst =
          std::max(worst, std::abs(found.logprobs[i] - expected.logprobs[i]));
    }
    std::printf("largest difference of a log-probability: %.2g\n", worst);
    EXPECT_LT(worst, 2e-5F);
  });
}

// Gives out prepared broadcasts, then loses the connection.
class ScriptedRank final : public Collective {
 public:
  explicit ScriptedRank(std::vector<std::string> messages)
      : messages_(std::move(messages)) {}
  int rank() const override { return 1; }
  int size() const override { return 2; }
  absl::Status Sum(absl::Span<float>) override { return absl::OkStatus(); }
  absl::Status Broadcast(std::string* bytes) override {
    if (next_ == messages_.size()) return absl::AbortedError("rank 0 is lost");
    *bytes = messages_[next_++];
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> Gather(std::string) override {
    return std::vector<std::string>{};
  }
  void Cancel() override {}

 private:
  const std::vector<std::string> messages_;
  size_t next_ = 0;
};

absl::Status Follow(std::vector<std::string> messages) {
  AtenBackend own(DecoderModel(MakeRandomModel("qwen3")), 1, 0);
  ScriptedRank collective(std::move(messages));
  return FollowBackend(own, at::kCPU, collective);
}

std::string StartMessage() {
  v1::DecodeCall call;
  WriteRequest({.prompt_ids = {3, 4},
                .sampling = {.temperature = 0, .max_new_tokens = 4},
                .key = {.seed = 1}},
               call.mutable_start());
  return call.SerializeAsString();
}

// `sampled`: by rank 0 in the step before, in slot 0.
std::string StepMessage(const std::vector<int32_t>& sampled) {
  v1::DecodeCall call;
  call.mutable_step();
  for (const int32_t token : sampled) call.add_sampled()->set_token(token);
  return call.SerializeAsString();
}

std::string EndMessage() {
  v1::DecodeCall call;
  call.mutable_end();
  return call.SerializeAsString();
}

TEST(BackendRelayTest, ARankThatSampledOtherTokensSaysSo) {
  const std::string first_step = StepMessage({});
  for (const std::string& second_step : {StepMessage({-7}), StepMessage({})}) {
    EXPECT_TRUE(
        absl::IsDataLoss(Follow({StartMessage(), first_step, second_step})));
  }
}

TEST(BackendRelayTest, WhatIsNoCallIsRefused) {
  EXPECT_TRUE(absl::IsDataLoss(Follow({"\xff\xff"})));
  EXPECT_TRUE(absl::IsDataLoss(Follow({""})));
}

TEST(BackendRelayTest, TheEndAndALostConnectionAreToldApart) {
  EXPECT_TRUE(Follow({EndMessage()}).ok());
  EXPECT_TRUE(absl::IsAborted(Follow({})));
}

TEST(BackendRelayTest, RankZeroHearsOfLostRanks) {
  ScriptedRank collective({});
  absl::Status heard;
  const auto leader =
      LeadBackend(std::make_unique<AtenBackend>(
                      DecoderModel(MakeRandomModel("qwen3")), 1, 0),
                  collective,
                  [&](const absl::Status& status) { heard = status; });
  EXPECT_THROW(leader->Step(), StatusError);
  EXPECT_TRUE(absl::IsAborted(heard)) << heard;
}

}  // namespace
}  // namespace dapd
