// Tests the engine when KV memory is short, with a backend that counts it and
// with real backends.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/aten/aten_backend.h"
#include "common/generation/cpu/cpu_decode_backend.h"
#include "common/generation/engine.h"
#include "tests/fakes/counting_backend.h"
#include "tests/fakes/engine_request.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

constexpr int64_t kPrompt = 4;
constexpr int64_t kAnswer = 196;

DecodeRequest RequestOf(uint64_t id,
                        int64_t prompt = kPrompt,
                        int64_t answer = kAnswer) {
  return EngineRequest(id, prompt, answer);
}

// Submits the requests with ids 1 to `last`.
void SubmitRequests(GenerationEngine& engine, uint64_t last) {
  for (uint64_t id = 1; id <= last; ++id) {
    ASSERT_TRUE(engine.Submit(id, RequestOf(id)).ok());
  }
}

struct TimedAnswer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  int64_t ended_in_step = 0;  // 0 if not ended
};

struct TimedAnswers {
  std::map<uint64_t, TimedAnswer> answers;
  std::vector<uint64_t> ended;  // in order
  std::map<uint64_t, absl::Status> failed;
  MemoryCost cost;  // of all answers
};

void StepOnce(GenerationEngine& engine, int64_t step, TimedAnswers& outcome) {
  for (const SampledToken& token : engine.Step()) {
    if (!token.error.ok()) {
      outcome.failed[token.id] = token.error;
      continue;
    }
    TimedAnswer& answer = outcome.answers[token.id];
    EXPECT_EQ(answer.ended_in_step, 0) << "a token after the end";
    answer.ids.push_back(token.token);
    answer.logprobs.push_back(token.logprob);
    if (token.finish_reason == FinishReason::kNone) continue;
    answer.ended_in_step = step;
    outcome.ended.push_back(token.id);
    outcome.cost += token.cost;
  }
}

TimedAnswers RunToTheEnd(GenerationEngine& engine) {
  TimedAnswers outcome;
  for (int64_t step = 1; engine.num_running() > 0; ++step) {
    StepOnce(engine, step, outcome);
  }
  EXPECT_EQ(engine.kv_use().bytes, 0);
  return outcome;
}

GenerationEngine MakeCountingEngine(const CountingOptions& options,
                                    int64_t budget,
                                    Counts& counts) {
  return {std::make_unique<CountingBackend>(options, counts),
          {.kv_memory_bytes = budget}};
}

// Expects every answer to be whole, without a repeated token.
void ExpectAllTokens(const TimedAnswers& outcome, uint64_t answers) {
  EXPECT_EQ(outcome.answers.size(), answers);
  for (const auto& [id, answer] : outcome.answers) {
    ASSERT_EQ(answer.ids.size(), static_cast<size_t>(kAnswer)) << id;
    for (int64_t i = 0; i < kAnswer; ++i) {
      ASSERT_EQ(answer.ids[static_cast<size_t>(i)],
                CountingBackend::TokenAt(static_cast<uint32_t>(id), i));
    }
  }
}

TEST(EngineMemoryTest, APromptThatStartsAgainIsScoredOnce) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({.side_by_side = 1}, 1 << 20, counts);
  DecodeRequest request = RequestOf(1, /*prompt=*/8, /*answer=*/5);
  request.prompt_ids = {10, 11, 12, 13, 14, 15, 16, 17};
  request.score_prompt = true;
  ASSERT_TRUE(engine.Submit(1, request).ok());
  std::vector<int32_t> scored;
  std::vector<int32_t> answer;
  const auto step = [&] {
    for (const SampledToken& token : engine.Step()) {
      if (token.id != 1) continue;
      EXPECT_TRUE(answer.empty() || !token.prompt_top.has_value());
      (token.prompt_top.has_value() ? scored : answer).push_back(token.token);
    }
  };
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(scored, (std::vector<int32_t>{11, 12, 13}));
  // There is no memory for two, so both start again.
  ASSERT_TRUE(engine.Submit(2, RequestOf(2)).ok());
  while (engine.num_running() > 0) step();
  EXPECT_EQ(counts.starts[1], 2);
  EXPECT_EQ(scored, (std::vector<int32_t>{11, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(answer.size(), 5U);
}

TEST(EngineMemoryTest, MoreRunSideBySideThanTheirLongestOutcomesWouldLet) {
  for (const bool from_the_start : {true, false}) {
    for (const int64_t tokens_a_step : {1, 8}) {
      Counts counts;
      // The memory holds two whole answers.
      GenerationEngine engine =
          MakeCountingEngine({.resumes_from_the_start = from_the_start,
                              .tokens_a_step = tokens_a_step},
                             2 * (kPrompt + kAnswer),
                             counts);
      ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
      ExpectAllTokens(RunToTheEnd(engine), 4);
      EXPECT_EQ(counts.most_running, 4);
      EXPECT_LE(counts.most_bytes, 2 * (kPrompt + kAnswer));
      EXPECT_GE(engine.kv_use().restarts, 2);
    }
  }
}

TEST(EngineMemoryTest, AnswersThatGiveWayAreKeptAndComputedOnce) {
  for (const bool from_the_start : {true, false}) {
    for (const int64_t tokens_a_step : {1, 8}) {
      Counts counts;
      GenerationEngine engine =
          MakeCountingEngine({.resumes_from_the_start = from_the_start,
                              .tokens_a_step = tokens_a_step,
                              .host_memory = 1000},
                             2 * (kPrompt + kAnswer),
                             counts);
      ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
      const TimedAnswers outcome = RunToTheEnd(engine);
      ExpectAllTokens(outcome, 4);
      EXPECT_LE(counts.most_bytes, 2 * (kPrompt + kAnswer));
      const KvUse use = engine.kv_use();
      EXPECT_GT(use.cost.swaps, 0);
      EXPECT_GT(use.cost.swapped_bytes, use.cost.swaps * kPrompt);
      EXPECT_EQ(use.cost.recomputed_tokens, 0);
      EXPECT_EQ(use.restarts, 0);
      EXPECT_EQ(use.host_bytes, 0);
      EXPECT_EQ(counts.kept, 0);
      for (const auto& [example, starts] : counts.starts) {
        EXPECT_EQ(starts, 1) << example;
      }
      // The answers and the engine tell the same cost.
      EXPECT_EQ(outcome.cost.swaps, use.cost.swaps);
      EXPECT_EQ(outcome.cost.swapped_bytes, use.cost.swapped_bytes);
    }
  }
}

// The host has room for a part of what gives way.
TEST(EngineMemoryTest, AnswersForWhichTheHostHasNoRoomAreComputedAgain) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({.host_memory = 120}, 2 * (kPrompt + kAnswer), counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  const TimedAnswers outcome = RunToTheEnd(engine);
  ExpectAllTokens(outcome, 4);
  const KvUse use = engine.kv_use();
  EXPECT_GT(use.cost.swaps, 0);
  EXPECT_GT(use.restarts, 0);
  EXPECT_GT(use.cost.recomputed_tokens, 0);
  EXPECT_EQ(outcome.cost.recomputed_tokens, use.cost.recomputed_tokens);
}

TEST(EngineMemoryTest, TheConfigurationMayKeepNothing) {
  Counts counts;
  GenerationEngine engine(
      std::make_unique<CountingBackend>(CountingOptions{.host_memory = 1000},
                                        counts),
      {.kv_memory_bytes = 2 * (kPrompt + kAnswer), .swap_memory_bytes = 0});
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  ExpectAllTokens(RunToTheEnd(engine), 4);
  EXPECT_EQ(engine.kv_use().cost.swaps, 0);
  EXPECT_GT(engine.kv_use().restarts, 0);
}

TEST(EngineMemoryTest, ACancelledAnswerIsNotKept) {
  Counts counts;
  GenerationEngine engine = MakeCountingEngine(
      {.host_memory = 1000}, 2 * (kPrompt + kAnswer), counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  TimedAnswers outcome;
  int64_t step = 1;
  while (engine.kv_use().host_bytes == 0) StepOnce(engine, step++, outcome);
  EXPECT_EQ(counts.kept, 1);
  // Keys and values of this adapter must not be used under the next one.
  EXPECT_THROW(engine.SetAdapter(nullptr), c10::Error);
  for (uint64_t id = 1; id <= 4; ++id) engine.Cancel(id);
  EXPECT_EQ(counts.kept, 0);
  EXPECT_EQ(engine.kv_use().host_bytes, 0);
  EXPECT_EQ(engine.kv_use().bytes, 0);
  engine.SetAdapter(nullptr);
}

// A step without memory leaves nothing that could be kept.
TEST(EngineMemoryTest, AfterAStepWithoutMemoryNothingIsKept) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({.host_memory = 1000, .side_by_side = 3},
                         4 * (kPrompt + kAnswer),
                         counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  ExpectAllTokens(RunToTheEnd(engine), 4);
  EXPECT_EQ(engine.kv_use().cost.swaps, 0);
  EXPECT_EQ(engine.kv_use().restarts, 4);
}

// Once an answer of 196 tokens has ended, all are expected to become as long.
TEST(EngineMemoryTest, NobodyStartsWhoIsExpectedToHaveToGiveWay) {
  Counts counts;
  GenerationEngine engine = MakeCountingEngine(
      {.host_memory = 1000}, 2 * (kPrompt + kAnswer), counts);
  ASSERT_TRUE(engine.Submit(9, RequestOf(9)).ok());
  RunToTheEnd(engine);
  counts.most_running = 0;
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  ExpectAllTokens(RunToTheEnd(engine), 4);
  EXPECT_EQ(counts.most_running, 2);
  EXPECT_EQ(engine.kv_use().cost.swaps, 0);
}

TEST(EngineMemoryTest, WithoutNeedNobodyGivesWay) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({}, 4 * (kPrompt + kAnswer), counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  ExpectAllTokens(RunToTheEnd(engine), 4);
  EXPECT_EQ(engine.kv_use().restarts, 0);
}

TEST(EngineMemoryTest, TheOldestIsNeverHeldUp) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({}, kPrompt + kAnswer + 100, counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  const TimedAnswers outcome = RunToTheEnd(engine);
  ExpectAllTokens(outcome, 4);
  EXPECT_EQ(outcome.answers.at(1).ended_in_step, kAnswer);
  EXPECT_EQ(counts.starts.at(1), 1);
  EXPECT_EQ(outcome.ended, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_GT(engine.kv_use().restarts, 0);
}

TEST(EngineMemoryTest, WhatCouldNeverFitIsRefusedWithBothNumbers) {
  Counts counts;
  GenerationEngine engine = MakeCountingEngine({}, 400, counts);
  const absl::Status too_long = engine.Submit(1, RequestOf(1, 4, 400));
  EXPECT_TRUE(absl::IsResourceExhausted(too_long)) << "others have more";
  for (const std::string part :
       {"answer of up to 400", "rollout.kv_memory_mib"}) {
    EXPECT_NE(too_long.message().find(part), std::string::npos) << too_long;
  }
  ASSERT_TRUE(engine.Submit(2, RequestOf(2, 4, 396)).ok());
  EXPECT_EQ(RunToTheEnd(engine).answers.at(2).ids.size(), 396U);
}

TEST(EngineMemoryTest, ACancelledAnswerGivesItsPagesBack) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({}, 2 * (kPrompt + kAnswer), counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  TimedAnswers outcome;
  int64_t step = 1;
  while (engine.kv_use().restarts == 0) StepOnce(engine, step++, outcome);
  const int64_t before = engine.kv_use().bytes;
  engine.Cancel(4);  // the youngest request, which waits
  EXPECT_EQ(engine.kv_use().bytes, before);
  EXPECT_EQ(engine.num_free(), 1);
  engine.Cancel(1);
  EXPECT_LT(engine.kv_use().bytes, before);
  EXPECT_EQ(engine.num_free(), 2);
  while (engine.num_running() > 0) StepOnce(engine, step++, outcome);
  EXPECT_EQ(engine.kv_use().bytes, 0);
  EXPECT_EQ(engine.kv_use().restarts, 1);
  EXPECT_EQ(outcome.ended, (std::vector<uint64_t>{2, 3}));
}

TEST(EngineMemoryTest, WhereTheDeviceHasLessThanTheBudgetAnswersGiveWayToo) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({.memory = 2 * (kPrompt + kAnswer)}, 0, counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  const TimedAnswers outcome = RunToTheEnd(engine);
  ExpectAllTokens(outcome, 4);
  EXPECT_EQ(counts.starts.at(1), 1);
  EXPECT_GT(engine.kv_use().restarts, 0);
}

// The memory of 200 bytes holds the first request's 5 bytes and the 2 x 64
// bytes by which two requests may grow, but no third request.
TEST(EngineMemoryTest, NobodyStartsWhoWouldSoonHaveToGiveWay) {
  Counts counts;
  GenerationEngine engine = MakeCountingEngine({}, kPrompt + kAnswer, counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 3));
  ExpectAllTokens(RunToTheEnd(engine), 3);
  EXPECT_EQ(counts.most_running, 2);
}

// Each end of an answer frees memory, and the engine tries again.
TEST(EngineMemoryTest, ADeviceThatWasFullOnceIsNotTakenForFullForEver) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({.memory = 2 * (kPrompt + kAnswer)}, 0, counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  ExpectAllTokens(RunToTheEnd(engine), 4);
  ASSERT_GT(engine.kv_use().restarts, 0);
  counts.most_running = 0;
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 2));
  ExpectAllTokens(RunToTheEnd(engine), 2);
  EXPECT_EQ(counts.most_running, 2);
}

TEST(EngineMemoryTest, AnAnswerThatIsAloneAndFindsNoMemoryIsAnError) {
  Counts counts;
  GenerationEngine engine = MakeCountingEngine({.memory = 100}, 0, counts);
  ASSERT_TRUE(engine.Submit(1, RequestOf(1)).ok());
  ASSERT_TRUE(engine.Submit(2, RequestOf(2, 101)).ok());
  ASSERT_TRUE(engine.Submit(3, RequestOf(3, kPrompt, 90)).ok());
  const TimedAnswers outcome = RunToTheEnd(engine);
  ASSERT_EQ(outcome.failed.size(), 2U);
  EXPECT_TRUE(absl::IsResourceExhausted(outcome.failed.at(1)));
  EXPECT_NE(outcome.failed.at(2).message().find("prompt of 101 tokens"),
            absl::string_view::npos)
      << outcome.failed.at(2);
  EXPECT_EQ(outcome.answers.at(3).ids.size(), 90U) << "the others go on";
}

TEST(EngineMemoryTest, AStepWithoutMemoryIsTakenAgainByHalfAsMany) {
  for (const bool from_the_start : {true, false}) {
    Counts counts;
    GenerationEngine engine = MakeCountingEngine(
        {.resumes_from_the_start = from_the_start, .side_by_side = 3},
        4 * (kPrompt + kAnswer),
        counts);
    ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
    const TimedAnswers outcome = RunToTheEnd(engine);
    EXPECT_TRUE(outcome.failed.empty());
    ExpectAllTokens(outcome, 4);
    EXPECT_EQ(counts.most_running, 2);
    EXPECT_EQ(engine.kv_use().restarts, 4);
    // No request waits any more, so as many run as before.
    for (uint64_t id = 5; id <= 7; ++id) {
      ASSERT_TRUE(engine.Submit(id, RequestOf(id)).ok());
    }
    EXPECT_EQ(RunToTheEnd(engine).answers.size(), 3U);
    EXPECT_EQ(counts.most_running, 3);
  }
}

TEST(EngineMemoryTest, OnlyTheAnswerThatNeverFitsFails) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({.hopeless = 2}, 4 * (kPrompt + kAnswer), counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  const TimedAnswers outcome = RunToTheEnd(engine);
  EXPECT_EQ(outcome.failed.size(), 1U);
  EXPECT_TRUE(outcome.failed.contains(2));
  ExpectAllTokens(outcome, 3);
  EXPECT_EQ(engine.num_free(), 4);
}

TEST(EngineMemoryTest, AnAnswerThatTakesAnotherCourseIsAnError) {
  Counts counts;
  GenerationEngine engine =
      MakeCountingEngine({.drifts = true}, 2 * (kPrompt + kAnswer), counts);
  ASSERT_NO_FATAL_FAILURE(SubmitRequests(engine, 4));
  EXPECT_THROW(RunToTheEnd(engine), c10::Error);
}

// Runs four answers with KV memory for `whole` answers of the longest length,
// and `swap_bytes` of the host for what they give up.
TimedAnswers RunOn(std::unique_ptr<DecodeBackend> backend,
                   int64_t whole,
                   int64_t swap_bytes,
                   KvUse& use) {
  const int64_t longest = backend->KvBytes(7 + 150);
  GenerationEngine engine(
      std::move(backend),
      {.kv_memory_bytes = whole * longest, .swap_memory_bytes = swap_bytes});
  for (uint64_t id = 1; id <= 4; ++id) {
    EXPECT_TRUE(
        engine.Submit(id, RequestOf(id, 3 + static_cast<int64_t>(id), 150))
            .ok());
  }
  TimedAnswers outcome;
  StepOnce(engine, 1, outcome);
  StepOnce(engine, 2, outcome);
  EXPECT_EQ(outcome.answers.size(), 4U);
  for (int64_t step = 3; engine.num_running() > 0; ++step) {
    StepOnce(engine, step, outcome);
    EXPECT_LE(engine.kv_use().bytes, whole * longest);
  }
  use = engine.kv_use();
  return outcome;
}

std::shared_ptr<const ModelWeights> EndlessModel(at::ScalarType dtype) {
  auto weights =
      std::make_shared<ModelWeights>(*MakeRandomModel("qwen3", 1, dtype));
  weights->config.eos_token_ids = {1000};  // no answer ends early
  return weights;
}

TEST(EngineMemoryTest, TheCpuGivesTheSameBitsWithLittleMemory) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto model = PackModel(*EndlessModel(dtype));
    const auto run = [&](int64_t whole, int64_t swap_bytes, KvUse& use) {
      return RunOn(
          std::make_unique<CpuDecodeBackend>(
              model, CpuDecodeBackendOptions{.slots = 4, .step_tokens = 16}),
          whole,
          swap_bytes,
          use);
    };
    KvUse use;
    const TimedAnswers ample = run(4, 0, use);
    EXPECT_EQ(use.restarts, 0);
    for (const int64_t swap_bytes : {int64_t{0}, int64_t{1} << 30}) {
      const TimedAnswers tight = run(3, swap_bytes, use);
      EXPECT_EQ(use.restarts > 0, swap_bytes == 0);
      EXPECT_EQ(use.cost.recomputed_tokens > 0, swap_bytes == 0);
      EXPECT_EQ(use.cost.swaps > 0, swap_bytes > 0);
      for (const auto& [id, answer] : ample.answers) {
        ASSERT_EQ(answer.ids.size(), 150U);
        EXPECT_EQ(tight.answers.at(id).ids, answer.ids) << id;
        EXPECT_EQ(tight.answers.at(id).logprobs, answer.logprobs) << id;
      }
    }
  }
}

TEST(EngineMemoryTest, LibTorchGivesTheSameAnswersWithLittleMemory) {
  const auto weights = EndlessModel(at::kFloat);
  // These caches are not kept, whatever the host has.
  const auto run = [&](int64_t whole, KvUse& use) {
    return RunOn(std::make_unique<AtenBackend>(DecoderModel(weights), 4, 0),
                 whole,
                 int64_t{1} << 30,
                 use);
  };
  KvUse use;
  const TimedAnswers ample = run(4, use);
  EXPECT_EQ(use.restarts, 0);
  const TimedAnswers tight = run(3, use);
  EXPECT_GT(use.restarts, 0);
  double worst = 0.0;
  for (const auto& [id, answer] : ample.answers) {
    const TimedAnswer& other = tight.answers.at(id);
    ASSERT_EQ(other.ids, answer.ids) << id;
    for (size_t i = 0; i < answer.ids.size(); ++i) {
      worst = Worse(worst, std::abs(other.logprobs[i] - answer.logprobs[i]));
    }
  }
  std::printf("largest difference of a log-probability: %.2g\n", worst);
  EXPECT_LT(worst, 1e-6);
}

}  // namespace
}  // namespace dapd
