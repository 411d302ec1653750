#include "common/generation/backend_relay.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/status_error.h"
#include "common/generation/aten/aten_backend.h"
#include "common/generation/decode_request_message.h"
#include "common/generation/engine.h"
#include "dapd/v1/rank.pb.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/random_shards.h"
#include "tests/fakes/thread_ranks.h"
#include "tests/fakes/trained_adapter.h"
#include "tests/fakes/worse.h"

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

// Holds answers that begin, end and are broken off, and scores with two
// adapters.
struct Outcome {
  std::vector<std::vector<int64_t>> tokens;  // by slot and token
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
      std::make_shared<const Adapter>(MakeFrozenAdapter(backend.config())));
  score();
  backend.Start(0, Request(7, 1));
  step(3);
  EXPECT_TRUE(backend.Reserve(0, 100));
  backend.Start(2, Request(4, 2));
  step(4);
  backend.Stop(0);
  backend.Start(1, Request(5, 3));
  step(3);
  EXPECT_TRUE(backend.Resume(0, Request(7, 1), {1, 2, 3}));
  step(3);
  backend.Stop(0);
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
    const std::shared_ptr<DeviceGroup> devices =
        DeviceGroup::Join(collective, at::kCPU, 1).value();
    auto own = std::make_unique<AtenBackend>(
        DecoderModel(
            *ShardModel(*whole, {collective.rank(), collective.size()}),
            devices),
        3,
        0);
    EXPECT_LT(own->KvBytes(64), alone.KvBytes(64));
    if (collective.rank() != 0) {
      const absl::Status status =
          FollowBackend(*own, at::kCPU, collective, *devices);
      EXPECT_TRUE(status.ok()) << status;
      return;
    }
    const auto leader = LeadBackend(
        std::move(own), collective, devices, [](const absl::Status&) {
          FAIL();
        });
    const Outcome found = Use(*leader);
    EXPECT_EQ(found.tokens, expected.tokens);
    ASSERT_EQ(found.logprobs.size(), expected.logprobs.size());
    double worst = 0.0;
    for (size_t i = 0; i < found.logprobs.size(); ++i) {
      worst = Worse(worst, std::abs(found.logprobs[i] - expected.logprobs[i]));
    }
    std::printf("largest difference of a log-probability: %.2g\n", worst);
    EXPECT_LT(worst, 2e-5);
  });
}

// Finds no memory when a sequence grows for the first time.
class ShortOfMemory final : public AtenBackend {
 public:
  using AtenBackend::AtenBackend;
  bool Reserve(int64_t slot, int64_t tokens) override {
    return std::exchange(refused_, true) && AtenBackend::Reserve(slot, tokens);
  }

 private:
  bool refused_ = false;
};

using Answers = std::map<uint64_t, std::vector<int32_t>>;

struct EngineOutcome {
  Answers answers;
  int64_t restarts = 0;
};

// Runs an engine over two ranks for four answers, with KV memory for `longest`
// whole answers; rank 1 has backends of type Second.
template <typename Second>
EngineOutcome RunEngineOnRanks(int64_t longest) {
  auto whole = std::make_shared<ModelWeights>(*MakeRandomModel("qwen3"));
  whole->config.eos_token_ids = {1000};  // no answer ends early
  EngineOutcome outcome;
  RunThreadRanks(2, [&](Collective& collective) {
    const std::shared_ptr<DeviceGroup> devices =
        DeviceGroup::Join(collective, at::kCPU, 1).value();
    DecoderModel model(
        *ShardModel(*whole, {collective.rank(), collective.size()}), devices);
    if (collective.rank() != 0) {
      Second own(std::move(model), 4, 0);
      const absl::Status status =
          FollowBackend(own, at::kCPU, collective, *devices);
      EXPECT_TRUE(status.ok()) << status;
      return;
    }
    auto own = std::make_unique<AtenBackend>(std::move(model), 4, 0);
    const int64_t bytes = own->KvBytes(8 + 150);
    GenerationEngine engine(
        LeadBackend(std::move(own),
                    collective,
                    devices,
                    [](const absl::Status& lost) { ADD_FAILURE() << lost; }),
        {.kv_memory_bytes = longest * bytes});
    for (uint32_t id = 1; id <= 4; ++id) {
      DecodeRequest request = Request(8, id);
      request.sampling.max_new_tokens = 150;
      EXPECT_TRUE(engine.Submit(id, request).ok());
    }
    while (engine.num_running() > 0) {
      for (const SampledToken& token : engine.Step()) {
        outcome.answers[token.id].push_back(token.token);
      }
    }
    outcome.restarts = engine.kv_use().restarts;
  });
  return outcome;
}

TEST(BackendRelayTest, RanksStayInStepWhereAnswersGiveTheirMemoryBack) {
  const EngineOutcome ample = RunEngineOnRanks<AtenBackend>(4);
  EXPECT_EQ(ample.restarts, 0);
  EXPECT_EQ(ample.answers.at(1).size(), 150U);
  const EngineOutcome tight = RunEngineOnRanks<AtenBackend>(3);
  EXPECT_GT(tight.restarts, 0);
  EXPECT_EQ(tight.answers, ample.answers);
}

TEST(BackendRelayTest, WhatOneRankHasNoMemoryForGrowsOnNone) {
  const EngineOutcome ample = RunEngineOnRanks<AtenBackend>(4);
  const EngineOutcome refused = RunEngineOnRanks<ShortOfMemory>(4);
  EXPECT_EQ(refused.restarts, 1);
  EXPECT_EQ(refused.answers, ample.answers);
}

// Gives prepared broadcasts, then loses the connection.
class ScriptedRank final : public Collective {
 public:
  // `without_memory` is the number of other ranks that find no memory.
  explicit ScriptedRank(std::vector<std::string> messages,
                        float without_memory = 0.0F)
      : messages_(std::move(messages)), without_memory_(without_memory) {}
  int rank() const override { return 1; }
  int size() const override { return 2; }
  absl::Status Sum(absl::Span<float> values) override {
    for (float& value : values) value += without_memory_;
    return absl::OkStatus();
  }
  absl::Status Broadcast(std::string* bytes) override {
    if (next_ == messages_.size()) return absl::AbortedError("rank 0 is lost");
    *bytes = messages_[next_++];
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> Gather(std::string) override {
    return std::vector<std::string>{};
  }
  absl::Status AwaitAll() override { return absl::OkStatus(); }
  bool HasLostRank() const override { return next_ == messages_.size(); }
  void Cancel() override {}

 private:
  const std::vector<std::string> messages_;
  const float without_memory_;
  size_t next_ = 0;
};

absl::Status Follow(std::vector<std::string> messages,
                    float without_memory = 0.0F) {
  AtenBackend own(DecoderModel(MakeRandomModel("qwen3")), 1, 0);
  ScriptedRank collective(std::move(messages), without_memory);
  return FollowBackend(own,
                       at::kCPU,
                       collective,
                       *DeviceGroup::Join(collective, at::kCPU, 1).value());
}

std::string StartMessage() {
  v1::DecodeCall call;
  WriteRequest({.prompt_ids = {3, 4},
                .sampling = {.temperature = 0, .max_new_tokens = 4},
                .key = {.seed = 1}},
               call.mutable_start());
  return call.SerializeAsString();
}

// `sampled` are the tokens that rank 0 sampled in the step before, in slot 0.
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

TEST(BackendRelayTest, WhatOneRankHasNoMemoryToStartIsStoppedOnAll) {
  const std::string step = StepMessage({});
  EXPECT_TRUE(Follow({StartMessage(), step, step, EndMessage()},
                     /*without_memory=*/1.0F)
                  .ok());
}

TEST(BackendRelayTest, AnAdapterThatOneRankHasNoMemoryForIsTakenByNone) {
  v1::DecodeCall call;
  call.mutable_adapter()->set_config_json(
      FormatLoraConfig({.rank = 2, .targets = {"q_proj"}}, ""));
  // Its tensors would come next.
  EXPECT_TRUE(Follow({call.SerializeAsString(), EndMessage()},
                     /*without_memory=*/1.0F)
                  .ok());
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
                  DeviceGroup::Join(collective, at::kCPU, 1).value(),
                  [&](const absl::Status& status) { heard = status; });
  EXPECT_THROW(leader->Step(), StatusError);
  EXPECT_TRUE(absl::IsAborted(heard)) << heard;
}

}  // namespace
}  // namespace dapd
