// Tests the CUDA decode backend when a GPU's memory is full, on a host that
// simulates the device (tests/fakes/cuda_on_host.cc): no tokens may change.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/cuda/cuda_decode_backend.h"
#include "common/generation/engine.h"
#include "tests/fakes/cuda_decode_api_on_host.h"
#include "tests/fakes/cuda_on_host.h"
#include "tests/fakes/decode_requests.h"

namespace dapd {
namespace {

// Says why no decoder can be made; null if a decoder can be made.
const char* no_memory = nullptr;

int CreateUnlessFull(const CudaDecoderSpec* spec,
                     void* workspace,
                     void** decoder,
                     char* error) {
  if (no_memory == nullptr) {
    return DapdCudaDecoderCreate(spec, workspace, decoder, error);
  }
  std::snprintf(error, kCudaErrorBytes, "%s", no_memory);
  return 1;
}

TEST(CudaOutOfMemoryTest, ADecoderThatFoundNoMemoryIsMadeWhenThereIsSome) {
  const auto weights = MakeDecodableModel("qwen3");
  CudaDecodeApi api = CudaDecodeApiOnHost();
  api.create = CreateUnlessFull;
  no_memory = nullptr;
  CudaDecodeBackend backend(*weights, {.slots = 1}, api);
  const auto expected = Generate(backend, MakeRequests());
  // An adapter in columns changes the layout.
  CudaDecodeBackend changing(
      *weights, {.slots = 1, .adapter_form = AdapterForm::kColumns}, api);
  for (const char* why :
       {"graph: out of memory", "product: CUBLAS_STATUS_ALLOC_FAILED"}) {
    no_memory = why;
    EXPECT_THROW(changing.SetAdapter(MakeAdapter(*weights)),
                 c10::OutOfMemoryError);
    EXPECT_THROW(changing.SetAdapter(nullptr), c10::OutOfMemoryError);
    EXPECT_FALSE(changing.Start(0, MakeRequests()[0]));
    EXPECT_THROW(changing.ScoreTokens({1, 2, 3}), c10::OutOfMemoryError);
  }
  no_memory = nullptr;
  for (const auto& [request, answer] : Generate(changing, MakeRequests())) {
    EXPECT_EQ(answer.tokens, expected.at(request).tokens);
  }
}

TEST(CudaOutOfMemoryTest, ADecoderThatFoundNoMemoryLeavesNoErrorToLibTorch) {
  const auto weights = MakeDecodableModel("qwen3");
  StreamsWithoutMemory() = 1;
  EXPECT_THROW(
      std::make_unique<CudaDecodeBackend>(
          *weights, CudaDecodeOptions{.slots = 1}, CudaDecodeApiOnHost()),
      c10::OutOfMemoryError);
  EXPECT_EQ(StreamsWithoutMemory(), 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// A decoder needs another graph when its sequences outgrow its first graph; the
// engine puts back sequences without memory.
TEST(CudaOutOfMemoryTest, AnswersAreTheSameWhereAGraphFindsNoMemory) {
  const auto weights = LongModel();
  const auto run = [&](bool stable_bits, int64_t without_memory) {
    GenerationEngine engine(
        std::make_unique<CudaDecodeBackend>(
            *weights,
            CudaDecodeOptions{.slots = 4, .stable_bits = stable_bits},
            CudaDecodeApiOnHost()),
        {});
    GraphsWithoutMemory() = without_memory;
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(engine.Submit(i, MakeRequest(1000 + i, 40, i)).ok());
    }
    std::map<uint64_t, std::vector<int32_t>> answers;
    for (int step = 0; step < 200 && engine.num_running() > 0; ++step) {
      for (const SampledToken& token : engine.Step()) {
        EXPECT_TRUE(token.error.ok()) << token.error;
        answers[token.id].push_back(token.token);
      }
    }
    EXPECT_EQ(engine.num_running(), 0);
    EXPECT_EQ(GraphsWithoutMemory(), 0);
    return std::pair(answers, engine.kv_use().restarts);
  };
  for (const bool stable_bits : {true, false}) {
    const auto [expected, none] = run(stable_bits, 0);
    EXPECT_EQ(none, 0);
    EXPECT_EQ(expected.at(3).size(), 40U);
    const auto [tight, restarts] = run(stable_bits, 1);
    EXPECT_GT(restarts, 0);
    EXPECT_EQ(tight, expected);
  }
}

TEST(CudaOutOfMemoryTest, AGraphOfFewerRowsIsNotNeeded) {
  const auto weights = EndlessModel(at::kBFloat16);
  const auto run = [&](int64_t* without_memory) {
    CudaDecodeBackend backend(*weights, {.slots = 32}, CudaDecodeApiOnHost());
    if (without_memory != nullptr) *without_memory = 1;
    WorkOfCudaHost() = {};
    EXPECT_TRUE(backend.Start(0, MakeRequest(20, 40, 1)));
    EXPECT_TRUE(backend.Start(1, MakeRequest(20, 5, 1)));
    EXPECT_TRUE(backend.Reserve(0, 60));
    EXPECT_TRUE(backend.Reserve(1, 25));
    bool both_run = true;
    std::vector<int32_t> tokens;
    while (tokens.size() < 40) {
      for (const DecodedToken& token : backend.Step()) {
        if (token.slot == 0) tokens.push_back(token.token);
      }
      if (both_run && tokens.size() >= 10) {
        backend.Stop(1);
        both_run = false;
      }
    }
    EXPECT_EQ(WorkOfCudaHost().attended_rows,
              without_memory == nullptr ? 8 : 32);
    // The graph is not captured again when the other sequence is stopped.
    EXPECT_EQ(WorkOfCudaHost().captures, 1);
    return tokens;
  };
  const std::vector<int32_t> expected = run(nullptr);
  for (int64_t* without_memory :
       {&GraphsWithoutMemory(), &GraphUploadsWithoutMemory()}) {
    EXPECT_EQ(run(without_memory), expected);
    EXPECT_EQ(*without_memory, 0);
    EXPECT_EQ(GraphsOfCudaHost(), 0);
  }
}

bool no_start = false;

int StartUnlessFull(void* decoder,
                    const CudaPrompt* prompts,
                    int64_t num_prompts,
                    const float* logits,
                    char* error) {
  if (!std::exchange(no_start, false)) {
    return DapdCudaDecoderStart(decoder, prompts, num_prompts, logits, error);
  }
  std::snprintf(error, kCudaErrorBytes, "start: out of memory");
  return 1;
}

TEST(CudaOutOfMemoryTest, PromptsThatFindNoMemoryPassInSmallerNumbers) {
  const auto weights = EndlessModel();
  CudaDecodeApi api = CudaDecodeApiOnHost();
  api.start = StartUnlessFull;
  const auto first = [&](bool full) {
    CudaDecodeBackend backend(*weights, {.slots = 4}, api);
    for (int64_t slot = 0; slot < 4; ++slot) {
      EXPECT_TRUE(backend.Start(
          slot, MakeRequest(20, 40, static_cast<uint32_t>(slot))));
    }
    no_start = full;
    std::map<int64_t, std::vector<int32_t>> tokens;
    for (int step = 0; step < 4; ++step) {
      for (const DecodedToken& token : backend.Step()) {
        tokens[token.slot].push_back(token.token);
      }
      // The first step has two of four sequences; the other two come later.
      if (step == 0) {
        EXPECT_EQ(tokens.size(), full ? 2U : 4U);
      }
    }
    for (auto& [slot, all] : tokens) all.resize(8);
    return tokens;
  };
  EXPECT_EQ(first(true), first(false));
}

enum class Lack { kNone, kOfAGraph, kAtAThirdLaunch };

TEST(CudaOutOfMemoryTest, ScoringThatFindsNoMemoryDisturbsNobody) {
  const auto weights = LongModel();
  const auto run = [&](Lack lack) {
    CudaDecodeBackend backend(*weights, {.slots = 2}, CudaDecodeApiOnHost());
    EXPECT_TRUE(backend.Start(0, MakeRequest(30, 40, 1)));
    EXPECT_TRUE(backend.Reserve(0, 70));
    std::vector<int32_t> tokens;
    for (const DecodedToken& token : backend.Step()) {
      tokens.push_back(token.token);
    }
    const std::vector<int32_t> ids(1100, 5);
    const int64_t launches = WorkOfCudaHost().graph_launches;
    if (lack == Lack::kOfAGraph) {
      GraphsWithoutMemory() = 1;
      EXPECT_THROW(backend.ScoreTokens(ids), c10::OutOfMemoryError);
      EXPECT_EQ(GraphsWithoutMemory(), 0);
    }
    if (lack == Lack::kAtAThirdLaunch) {
      LaunchesBeforeNoMemory() = 2;
      EXPECT_THROW(backend.ScoreTokens(ids), c10::OutOfMemoryError);
      // No launch follows the launch that found no memory.
      EXPECT_EQ(WorkOfCudaHost().graph_launches, launches + 2);
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    for (int step = 0; step < 30 && tokens.size() < 40; ++step) {
      for (const DecodedToken& token : backend.Step()) {
        tokens.push_back(token.token);
      }
    }
    return tokens;
  };
  const std::vector<int32_t> expected = run(Lack::kNone);
  EXPECT_EQ(expected.size(), 40U);
  EXPECT_EQ(run(Lack::kOfAGraph), expected);
  EXPECT_EQ(run(Lack::kAtAThirdLaunch), expected);
}

}  // namespace
}  // namespace dapd
