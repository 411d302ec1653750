#include "common/generation/engine.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/make_decode_backend.h"
#include "common/model/reference/decoder.h"
#include "tests/fakes/engine_request.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

struct EndedAnswer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  FinishReason finish_reason = FinishReason::kNone;
  bool operator==(const EndedAnswer&) const = default;
};

using EndedAnswers = std::map<uint64_t, EndedAnswer>;

void Collect(std::vector<SampledToken> tokens, EndedAnswers& answers) {
  for (const SampledToken& token : tokens) {
    EndedAnswer& answer = answers[token.id];
    answer.ids.push_back(token.token);
    answer.logprobs.push_back(token.logprob);
    answer.finish_reason = token.finish_reason;
  }
}

GenerationEngine MakeEngine(const std::shared_ptr<const ModelWeights>& weights,
                            int64_t slots,
                            EngineOptions options = {}) {
  return {MakeDecodeBackend(weights, {.slots = slots}), options};
}

EndedAnswers RunAll(GenerationEngine& engine) {
  EndedAnswers answers;
  while (engine.num_running() > 0) Collect(engine.Step(), answers);
  return answers;
}

TEST(GenerationEngineTest, WeightsWhoseLogitsAreNotFiniteAreAnError) {
  auto weights = std::make_shared<ModelWeights>(*MakeRandomModel("qwen3"));
  weights->head = weights->head * 1e38;
  GenerationEngine engine = MakeEngine(weights, 1);
  ASSERT_TRUE(engine.Submit(1, EngineRequest(1, 3, 4)).ok());
  EXPECT_THROW(engine.Step(), c10::Error);
}

TEST(GenerationEngineTest, BitsDoNotDependOnNeighboursSlotOrTime) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeRandomModel(family);
    EndedAnswer alone;
    {
      GenerationEngine engine = MakeEngine(weights, 4);
      ASSERT_TRUE(engine.Submit(1, EngineRequest(1, 9, 40)).ok());
      alone = RunAll(engine)[1];
    }
    // The request takes the last slot, beside requests that already run.
    GenerationEngine engine = MakeEngine(weights, 4);
    EndedAnswers answers;
    for (uint64_t id : {2, 3, 4}) {
      ASSERT_TRUE(
          engine.Submit(id, EngineRequest(id, 3 + static_cast<int64_t>(id), 60))
              .ok());
      Collect(engine.Step(), answers);
    }
    ASSERT_TRUE(engine.Submit(1, EngineRequest(1, 9, 40)).ok() ||
                engine.num_free() == 0);
    while (engine.num_running() > 0) Collect(engine.Step(), answers);
    EXPECT_EQ(answers[1].ids, alone.ids) << family;
    EXPECT_EQ(answers[1].logprobs, alone.logprobs) << family;
  }
}

TEST(GenerationEngineTest, CachedDecodeAgreesWithTheFullForward) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeRandomModel(family, 3);
    GenerationEngine engine = MakeEngine(weights, 2);
    const DecodeRequest request = EngineRequest(1, 8, 30);
    ASSERT_TRUE(engine.Submit(1, request).ok());
    const EndedAnswer answer = RunAll(engine)[1];
    std::vector<int32_t> all = request.prompt_ids;
    all.insert(all.end(), answer.ids.begin(), answer.ids.end());
    const auto count = static_cast<int64_t>(answer.ids.size());
    const at::Tensor rows = at::arange(7, 7 + count, at::kLong);
    const at::Tensor logits = ApplyHead(
        *weights,
        ForwardHidden(*weights, nullptr, PackTokens({all}, at::kCPU), rows));
    const at::Tensor logprobs = at::log_softmax(logits, -1);
    double worst = 0.0;
    for (int64_t i = 0; i < count; ++i) {
      worst = Worse(
          worst,
          std::abs(
              logprobs[i][answer.ids[static_cast<size_t>(i)]].item<double>() -
              static_cast<double>(answer.logprobs[static_cast<size_t>(i)])));
    }
    RecordProperty(family, std::to_string(worst));
    EXPECT_LT(worst, 1e-4) << family;
  }
}

TEST(GenerationEngineTest, AnAdapterChangesTheAnswerAndBZeroDoesNot) {
  const auto weights = MakeRandomModel("qwen3");
  auto fresh = std::make_shared<Adapter>(
      MakeFreshAdapter(weights->config, {.rank = 4, .alpha = 8}, 1, at::kCPU));
  auto trained = std::make_shared<Adapter>(fresh->Clone());
  for (auto& layer : trained->layers) {
    for (LoraPair& pair : layer) pair.b.fill_(0.1);
  }
  std::vector<EndedAnswer> answers;
  for (const std::shared_ptr<const Adapter>& adapter :
       {std::shared_ptr<const Adapter>(),
        std::shared_ptr<const Adapter>(fresh),
        std::shared_ptr<const Adapter>(trained)}) {
    GenerationEngine engine = MakeEngine(weights, 2);
    engine.SetAdapter(adapter);
    ASSERT_TRUE(engine.Submit(1, EngineRequest(1, 5, 20)).ok());
    answers.push_back(RunAll(engine)[1]);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_NE(answers[0].logprobs, answers[2].logprobs);
}

TEST(GenerationEngineTest, WhatCannotBeDoneIsRefusedAtSubmit) {
  const auto weights = MakeRandomModel("llama");
  GenerationEngine engine = MakeEngine(weights, 1);
  EXPECT_EQ(engine.Submit(1, EngineRequest(1, 0, 5)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.Submit(1, EngineRequest(1, 250, 7)).code(),
            absl::StatusCode::kInvalidArgument);
  DecodeRequest foreign = EngineRequest(1, 3, 5);
  foreign.prompt_ids[1] = 97;
  EXPECT_EQ(engine.Submit(1, foreign).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(engine.Submit(1, EngineRequest(1, 3, 5)).ok());
  EXPECT_EQ(engine.Submit(2, EngineRequest(2, 3, 5)).code(),
            absl::StatusCode::kResourceExhausted);
  engine.Cancel(1);
  EXPECT_EQ(engine.num_free(), 1);
}

TEST(GenerationEngineTest,
     WhatDoesNotFitTheKvMemoryYetWaitsAndTheRestIsRefused) {
  const auto weights = MakeRandomModel("qwen3");
  const int64_t one = MakeDecodeBackend(weights, {.slots = 1})->KvBytes(4 + 60);
  GenerationEngine engine =
      MakeEngine(weights, 4, {.kv_memory_bytes = 2 * one});
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(engine.Submit(id, EngineRequest(id, 4, 60)).ok());
  }
  EXPECT_EQ(engine.num_free(), 1);
  EndedAnswers first;
  Collect(engine.Step(), first);
  EXPECT_EQ(first.size(), 2u);  // the third waits
  const absl::Status refused = engine.Submit(4, EngineRequest(4, 100, 100));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("rollout.kv_memory_mib"), std::string::npos);
  engine.Cancel(2);
  EndedAnswers rest = RunAll(engine);
  EXPECT_EQ(engine.num_free(), 4);
  GenerationEngine alone = MakeEngine(weights, 1);
  ASSERT_TRUE(alone.Submit(3, EngineRequest(3, 4, 60)).ok());
  EXPECT_EQ(rest[3], RunAll(alone)[3]);
}

TEST(GenerationEngineTest, AnAnswerEndsWithAnEndTokenOrItsLength) {
  const auto weights = MakeRandomModel("qwen3");
  GenerationEngine engine = MakeEngine(weights, 8);
  for (uint64_t id = 1; id <= 8; ++id) {
    ASSERT_TRUE(engine.Submit(id, EngineRequest(id, 4, 100)).ok());
  }
  for (const auto& [id, answer] : RunAll(engine)) {
    if (answer.finish_reason == FinishReason::kEos) {
      EXPECT_EQ(answer.ids.back(), 0);
    } else {
      EXPECT_EQ(answer.ids.size(), 100u);
    }
  }
}

}  // namespace
}  // namespace dapd
