// Compares the CUDA decode backend on a host that simulates the device
// (tests/fakes/cuda_on_host.cc) with LibTorch's operations: packing, rows,
// pages, sampling state, adapters and scoring.

#include "common/generation/cuda/cuda_decode_backend.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/aten/aten_backend.h"
#include "common/generation/engine.h"
#include "common/model/reference/token_logprobs.h"
#include "tests/fakes/cuda_decode_api_on_host.h"
#include "tests/fakes/cuda_on_host.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

TEST(CudaDecodeBackendTest, TokensAreThoseOfLibTorchsOperations) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeDecodableModel(family);
    for (const bool with_adapter : {false, true}) {
      for (const AdapterForm form :
           {AdapterForm::kMerged, AdapterForm::kColumns}) {
        CudaDecodeBackend ours(*weights,
                               {.slots = 3, .adapter_form = form},
                               CudaDecodeApiOnHost());
        AtenBackend slow(DecoderModel(weights), 3, 0);
        if (with_adapter) {
          ours.SetAdapter(MakeAdapter(*weights));
          slow.SetAdapter(MakeAdapter(*weights));
        }
        const auto requests = MakeRequests();
        const auto expected = Generate(slow, requests);
        double error = 0.0;
        for (const auto& [request, answer] : Generate(ours, requests)) {
          ASSERT_EQ(answer.tokens, expected.at(request).tokens)
              << family << ", request " << request;
          for (size_t i = 0; i < answer.logprobs.size(); ++i) {
            error = Worse(error,
                          std::abs(answer.logprobs[i] -
                                   expected.at(request).logprobs[i]));
          }
        }
        std::cout << family << (with_adapter ? " with adapter" : "")
                  << ": largest error of a log-probability " << error << "\n";
        EXPECT_LT(error, 2e-4);
      }
    }
  }
}

// Prompts of one token and around the tokens that are scored at a time; every
// other one is scored, and all pass side by side.
TEST(CudaDecodeBackendTest, PromptsAreScoredAsByLibTorchsOperations) {
  const auto weights = MakeDecodableModel("qwen3");
  const auto adapter = MakeAdapter(*weights);
  std::vector<DecodeRequest> requests;
  for (const int64_t prompt : std::initializer_list<int64_t>{
           1, kScoredRows, kScoredRows + 1, kScoredRows + 2, 7, 300}) {
    for (const bool scored : {false, true}) {
      requests.push_back(
          MakeRequest(prompt, 6, static_cast<uint32_t>(requests.size())));
      requests.back().score_prompt = scored;
    }
  }
  auto unscored = requests;
  for (DecodeRequest& request : unscored) request.score_prompt = false;
  CudaDecodeBackend ours(*weights, {.slots = 12}, CudaDecodeApiOnHost());
  CudaDecodeBackend single(*weights, {.slots = 1}, CudaDecodeApiOnHost());
  AtenBackend slow(DecoderModel(weights), 3, 0);
  // In float32 the bits of an answer depend on the number of slots.
  CudaDecodeBackend unasked(*weights, {.slots = 12}, CudaDecodeApiOnHost());
  for (DecodeBackend* backend :
       std::initializer_list<DecodeBackend*>{&ours, &single, &slow, &unasked}) {
    backend->SetAdapter(adapter);
  }
  const auto found = Generate(ours, requests);
  const auto alone = Generate(single, requests);
  const auto expected = Generate(slow, requests);
  const auto plain = Generate(unasked, unscored);
  double error = 0.0;
  size_t count = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(found.at(i).tokens, plain.at(i).tokens) << i;
    EXPECT_EQ(found.at(i).logprobs, plain.at(i).logprobs) << i;
    const auto& scores = found.at(i).prompt;
    const auto& reference = expected.at(i).prompt;
    ASSERT_EQ(scores.size(),
              requests[i].score_prompt ? requests[i].prompt_ids.size() - 1 : 0);
    ASSERT_EQ(reference.size(), scores.size());
    for (size_t t = 0; t < scores.size(); ++t) {
      EXPECT_EQ(scores[t].token, requests[i].prompt_ids[t + 1]);
      EXPECT_EQ(scores[t].logprob, alone.at(i).prompt[t].logprob);
      EXPECT_EQ(scores[t].prompt_top->id, reference[t].prompt_top->id);
      error = Worse(error, std::abs(scores[t].logprob - reference[t].logprob));
      error = Worse(error,
                    std::abs(scores[t].prompt_top->logprob -
                             reference[t].prompt_top->logprob));
      ++count;
    }
  }
  std::cout << "largest error of " << count << " scored tokens " << error
            << "\n";
  EXPECT_EQ(count, 3U * kScoredRows + 6 + 299);
  EXPECT_LT(error, 2e-4);
}

TEST(CudaDecodeBackendTest, BitsDoNotDependOnNeighboursOrTheNumberOfSlots) {
  const auto weights = MakeDecodableModel("qwen3", at::kBFloat16);
  const auto requests = MakeRequests();
  CudaDecodeBackend one(*weights, {.slots = 1}, CudaDecodeApiOnHost());
  CudaDecodeBackend four(*weights, {.slots = 4}, CudaDecodeApiOnHost());
  const auto alone = Generate(one, requests);
  for (const auto& [request, answer] : Generate(four, requests)) {
    EXPECT_EQ(answer.tokens, alone.at(request).tokens);
  }
  // Rows without stable bits give the same tokens here, because the host's sums
  // do not depend on the rows.
  CudaDecodeBackend packed(
      *weights, {.slots = 4, .stable_bits = false}, CudaDecodeApiOnHost());
  for (const auto& [request, answer] : Generate(packed, requests)) {
    EXPECT_EQ(answer.tokens, alone.at(request).tokens);
  }
}

// With both backends a model of bfloat16 rounds its own activations, in another
// order of sums; rounded keys and values move the log-probabilities further.
TEST(CudaDecodeBackendTest, KeysAndValuesInFloat8AreThoseOfLibTorch) {
  const auto weights = MakeDecodableModel("qwen3", at::kBFloat16);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 300; ++i) ids.push_back(i * 5 % 97);
  const auto scores = [&ids](DecodeBackend&& backend) {
    return backend.ScoreTokens(ids);
  };
  const auto distance = [](const std::vector<float>& a,
                           const std::vector<float>& b) {
    double sum = 0.0;
    for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
    return sum / static_cast<double>(a.size());
  };
  CudaDecodeBackend ours(
      *weights, {.slots = 2, .kv_float8 = true}, CudaDecodeApiOnHost());
  const std::vector<float> found = ours.ScoreTokens(ids);
  ASSERT_EQ(found.size(), ids.size() - 1);
  const double error =
      distance(found, scores(AtenBackend(DecoderModel(weights), 2, 0, true)));
  const double without =
      distance(found, scores(AtenBackend(DecoderModel(weights), 2, 0)));
  std::cout << "mean difference of a log-probability " << error
            << ", from keys and values that are not rounded " << without
            << "\n";
  EXPECT_LT(error, 0.5 * without);
  // Each answer is a function of its request alone, as ever.
  CudaDecodeBackend one(
      *weights, {.slots = 1, .kv_float8 = true}, CudaDecodeApiOnHost());
  const auto alone = Generate(one, MakeRequests());
  for (const auto& [request, answer] : Generate(ours, MakeRequests())) {
    EXPECT_EQ(answer.tokens, alone.at(request).tokens) << request;
  }
  // A page has keys and values of two heads in two layers: 16 numbers of a byte
  // and a scale of two.
  EXPECT_EQ(ours.KvBytes(129), 2 * 128 * 2 * 2 * 2 * (16 + 2));
}

TEST(CudaDecodeBackendTest, ScoringBetweenStepsDisturbsNobody) {
  const auto weights = MakeDecodableModel("qwen3");
  const auto adapter = MakeAdapter(*weights);
  CudaDecodeBackend backend(*weights, {.slots = 2}, CudaDecodeApiOnHost());
  backend.SetAdapter(adapter);
  const std::vector<DecodeRequest> requests = {MakeRequest(9, 40, 1),
                                               MakeRequest(20, 40, 2)};
  const auto expected = Generate(backend, requests);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 150; ++i) ids.push_back(i * 5 % 97);
  const at::Tensor reference = TokenLogprobs(*weights, adapter.get(), ids);
  std::vector<Answer> answers(2);
  backend.Start(0, requests[0]);
  backend.Start(1, requests[1]);
  double error = 0.0;
  for (int step = 0; step < 12; ++step) {
    for (const DecodedToken& token : backend.Step()) {
      answers[token.slot].tokens.push_back(token.token);
    }
    const std::vector<float> scored = backend.ScoreTokens(ids);
    ASSERT_EQ(scored.size(), ids.size() - 1);
    for (size_t i = 0; i < scored.size(); ++i) {
      error = Worse(error,
                    std::abs(scored[i] -
                             reference[static_cast<int64_t>(i)].item<float>()));
    }
  }
  std::cout << "largest error of a scored token " << error << "\n";
  EXPECT_LT(error, 2e-4);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answers[i].tokens, expected.at(i).tokens);
  }
}

struct PagedAnswers {
  std::map<uint64_t, Answer> answers;
  KvUse use;
};

// Runs four answers that take three pages each in the end.
PagedAnswers RunOnPages(const ModelWeights& weights,
                        int64_t pages,
                        std::optional<int64_t> swap_bytes) {
  auto backend = std::make_unique<CudaDecodeBackend>(
      weights, CudaDecodeOptions{.slots = 4}, CudaDecodeApiOnHost());
  backend->SetAdapter(MakeAdapter(weights));
  const int64_t page = backend->KvBytes(1);
  GenerationEngine engine(
      std::move(backend),
      {.kv_memory_bytes = pages * page, .swap_memory_bytes = swap_bytes});
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(engine.Submit(i, MakeRequest(100 + i, 200, i)).ok());
  }
  PagedAnswers run;
  while (engine.num_running() > 0) {
    for (const SampledToken& token : engine.Step()) {
      run.answers[token.id].tokens.push_back(token.token);
      run.answers[token.id].logprobs.push_back(token.logprob);
    }
    EXPECT_LE(engine.kv_use().bytes, pages * page);
  }
  run.use = engine.kv_use();
  return run;
}

TEST(CudaDecodeBackendTest, AnswersThatGiveTheirPagesBackAreTheSame) {
  const auto weights = EndlessModel();
  const PagedAnswers ample = RunOnPages(*weights, 100, 0);
  EXPECT_EQ(ample.use.restarts, 0);
  const PagedAnswers tight = RunOnPages(*weights, 9, 0);
  EXPECT_GT(tight.use.restarts, 0);
  EXPECT_GT(tight.use.cost.recomputed_tokens, 0);
  double error = 0.0;
  for (const auto& [id, answer] : tight.answers) {
    const Answer& other = ample.answers.at(id);
    ASSERT_EQ(answer.tokens, other.tokens) << id;
    for (size_t i = 0; i < answer.logprobs.size(); ++i) {
      error = Worse(error, std::abs(answer.logprobs[i] - other.logprobs[i]));
    }
  }
  std::cout << tight.use.restarts
            << " restarts, largest difference of a log-probability " << error
            << "\n";
  EXPECT_LT(error, 1e-5);
}

void ExpectSameBits(const PagedAnswers& found, const PagedAnswers& expected) {
  ASSERT_EQ(found.answers.size(), expected.answers.size());
  for (const auto& [id, answer] : found.answers) {
    EXPECT_EQ(answer.tokens, expected.answers.at(id).tokens) << id;
    EXPECT_EQ(answer.logprobs, expected.answers.at(id).logprobs) << id;
  }
}

TEST(CudaDecodeBackendTest, AnswersThatWereOnTheHostHaveTheSameBits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto weights = EndlessModel(dtype);
    const PagedAnswers ample = RunOnPages(*weights, 100, std::nullopt);
    EXPECT_EQ(ample.use.cost.swaps, 0);
    const PagedAnswers tight = RunOnPages(*weights, 9, std::nullopt);
    std::cout << tight.use.cost.swaps << " swaps of "
              << tight.use.cost.swapped_bytes << " bytes, "
              << tight.use.cost.recomputed_tokens << " tokens again\n";
    EXPECT_GT(tight.use.cost.swaps, 0);
    EXPECT_EQ(tight.use.cost.recomputed_tokens, 0);
    EXPECT_EQ(tight.use.restarts, 0);
    ExpectSameBits(tight, ample);
  }
}

// The host gives one page, so most answers are decoded again.
TEST(CudaDecodeBackendTest, WithoutMemoryOfTheHostAnswersAreDecodedAgain) {
  const auto weights = EndlessModel();
  const PagedAnswers ample = RunOnPages(*weights, 100, std::nullopt);
  PagesOfHostMemory() = 1 + kMaxBursts;
  const PagedAnswers tight = RunOnPages(*weights, 9, std::nullopt);
  PagesOfHostMemory() = -1;
  EXPECT_GT(tight.use.restarts, 0);
  for (const auto& [id, answer] : tight.answers) {
    EXPECT_EQ(answer.tokens, ample.answers.at(id).tokens) << id;
  }
}

// A sequence leaves at each step, among others for another slot, and while
// tokens are on their way.
TEST(CudaDecodeBackendTest, ASequenceMayLeaveAtAnyStepForAnySlot) {
  const auto weights = EndlessModel();
  DecodeRequest request = MakeRequest(120, 40, 1);
  request.score_prompt = true;
  CudaDecodeBackend alone(*weights, {.slots = 3}, CudaDecodeApiOnHost());
  const Answer expected = Generate(alone, {request}).at(0);
  for (int leaves_after = 0; leaves_after < 8; ++leaves_after) {
    CudaDecodeBackend backend(*weights, {.slots = 3}, CudaDecodeApiOnHost());
    Answer answer;
    int64_t slot = 0;
    const auto step = [&] {
      for (const DecodedToken& token : backend.Step()) {
        if (token.slot != slot) continue;
        if (token.prompt_top.has_value()) {
          answer.prompt.push_back(token);
          continue;
        }
        answer.tokens.push_back(token.token);
        answer.logprobs.push_back(token.logprob);
      }
    };
    ASSERT_TRUE(backend.Start(0, request));
    ASSERT_TRUE(backend.Reserve(0, request.MaxTokens()));
    for (int i = 0; i < leaves_after; ++i) step();
    const int64_t kept = backend.SwapOut(0, 7);
    if (leaves_after == 0) {
      EXPECT_EQ(kept, 0) << "its prompt was not computed";
      continue;
    }
    EXPECT_GE(kept, backend.KvBytes(1)) << leaves_after;
    // Another sequence takes the slot and the memory.
    ASSERT_TRUE(backend.Start(0, MakeRequest(60, 100, 5)));
    ASSERT_TRUE(backend.Reserve(0, 160));
    slot = -1;
    step();
    slot = 2;
    ASSERT_TRUE(backend.SwapIn(2, 7, request.MaxTokens()));
    while (answer.tokens.size() < 40) step();
    EXPECT_EQ(answer.tokens, expected.tokens) << leaves_after;
    EXPECT_EQ(answer.logprobs, expected.logprobs) << leaves_after;
    EXPECT_EQ(answer.prompt.size(), 119U) << leaves_after;
  }
}

TEST(CudaDecodeBackendTest, AnAdapterOfAnotherRankChangesTheLayout) {
  const auto weights = MakeDecodableModel("qwen3", at::kBFloat16);
  CudaDecodeBackend backend(*weights, {.slots = 2}, CudaDecodeApiOnHost());
  const auto base = Generate(backend, MakeRequests());
  backend.SetAdapter(MakeAdapter(*weights));
  const auto adapted = Generate(backend, MakeRequests());
  EXPECT_NE(adapted.at(6).tokens, base.at(6).tokens);
  backend.SetAdapter(std::make_shared<Adapter>(
      MakeFreshAdapter(weights->config, {.rank = 24}, 1, at::kCPU)));
  backend.SetAdapter(nullptr);
  for (const auto& [request, answer] : Generate(backend, MakeRequests())) {
    EXPECT_EQ(answer.tokens, base.at(request).tokens);
  }
}

TEST(CudaDecodeBackendTest, ASequenceTooLongForTheTablesFitsNoBudget) {
  const auto weights = MakeDecodableModel("qwen3");
  const CudaDecodeBackend backend(
      *weights, {.slots = 2}, CudaDecodeApiOnHost());
  // A page has keys and values of two heads in two layers, in float32.
  const int64_t page = 128 * 2 * 2 * 2 * 16 * 4;
  EXPECT_EQ(backend.KvBytes(1), page);
  EXPECT_EQ(backend.KvBytes(129), 2 * page);
  EXPECT_EQ(backend.KvBytes(2049), DecodeBackend::kTooLong);
}

}  // namespace
}  // namespace dapd
