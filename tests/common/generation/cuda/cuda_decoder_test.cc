// The CUDA decode backend on a host that plays the device
// (tests/fakes/cuda_on_host.cc): packing, pages, graphs, rows, sampling state
// and scoring against LibTorch's operations.

#include "common/generation/cuda/cuda_decoder.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/aten/aten_backend.h"
#include "common/generation/cuda/cuda_decode_backend.h"
#include "common/generation/cuda/cuda_prefill.h"
#include "common/generation/engine.h"
#include "common/kernels/decode_attention_math.h"
#include "common/model/reference/decoder.h"
#include "common/model/reference/token_logprobs.h"
#include "tests/fakes/cuda_on_host.h"
#include "tests/fakes/decode_requests.h"

namespace dapd {

extern "C" int64_t DapdCudaFreeBytes() { return int64_t{1} << 30; }

namespace {

CudaLibrary HostLibrary() {
  return {&DapdCudaFreeBytes,
          &DapdCudaMergeWorkspace,
          &DapdCudaMergeAdapter,
          &DapdCudaDecoderWorkspace,
          &DapdCudaDecoderCreate,
          &DapdCudaDecoderDestroy,
          &DapdCudaDecoderStart,
          &DapdCudaDecoderExtend,
          &DapdCudaDecoderStop,
          &DapdCudaDecoderLaunch,
          &DapdCudaDecoderCollect,
          &DapdCudaDecoderLaunched,
          &DapdCudaDecoderRunning};
}

TEST(CudaDecoderTest, TokensAreThoseOfLibTorchsOperations) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeDecodableModel(family);
    for (const bool with_adapter : {false, true}) {
      for (const AdapterForm form :
           {AdapterForm::kMerged, AdapterForm::kColumns}) {
        CudaDecodeBackend ours(
            *weights, {.slots = 3, .adapter_form = form}, HostLibrary());
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
            error =
                std::max<double>(error,
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

TEST(CudaDecoderTest, BitsDoNotDependOnNeighboursOrTheNumberOfSlots) {
  const auto weights = MakeDecodableModel("qwen3", at::kBFloat16);
  const auto requests = MakeRequests();
  CudaDecodeBackend one(*weights, {.slots = 1}, HostLibrary());
  CudaDecodeBackend four(*weights, {.slots = 4}, HostLibrary());
  const auto alone = Generate(one, requests);
  for (const auto& [request, answer] : Generate(four, requests)) {
    EXPECT_EQ(answer.tokens, alone.at(request).tokens);
  }
  // The other kind of rows gives the same tokens here, where the host's sums do
  // not depend on them.
  CudaDecodeBackend packed(
      *weights, {.slots = 4, .stable_bits = false}, HostLibrary());
  for (const auto& [request, answer] : Generate(packed, requests)) {
    EXPECT_EQ(answer.tokens, alone.at(request).tokens);
  }
}

TEST(CudaDecoderTest, ScoringBetweenStepsDisturbsNobody) {
  const auto weights = MakeDecodableModel("qwen3");
  const auto adapter = MakeAdapter(*weights);
  CudaDecodeBackend backend(*weights, {.slots = 2}, HostLibrary());
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
      error = std::max<double>(
          error,
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

// No answer of it ends early.
std::shared_ptr<const ModelWeights> EndlessModel() {
  auto weights = std::make_shared<ModelWeights>(*MakeDecodableModel("qwen3"));
  weights->config.eos_token_ids = {1000};
  return weights;
}

TEST(CudaDecoderTest, AnswersThatGiveTheirPagesBackAreTheSame) {
  const auto weights = EndlessModel();
  const auto run = [&](int64_t kv_pages) {
    auto backend = std::make_unique<CudaDecodeBackend>(
        *weights, CudaDecodeOptions{.slots = 4}, HostLibrary());
    const int64_t page = backend->KvBytes(1);
    GenerationEngine engine(std::move(backend),
                            {.kv_memory_bytes = kv_pages * page});
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(engine.Submit(i, MakeRequest(100 + i, 200, i)).ok());
    }
    std::map<uint64_t, Answer> answers;
    while (engine.num_running() > 0) {
      for (const SampledToken& token : engine.Step()) {
        answers[token.id].tokens.push_back(token.token);
        answers[token.id].logprobs.push_back(token.logprob);
      }
      EXPECT_LE(engine.kv_use().bytes, kv_pages * page);
    }
    return std::pair(answers, engine.kv_use().restarts);
  };
  const auto [ample, none] = run(100);
  EXPECT_EQ(none, 0);
  // Each takes three pages in the end.
  const auto [tight, restarts] = run(9);
  EXPECT_GT(restarts, 0);
  double error = 0.0;
  for (const auto& [id, answer] : tight) {
    ASSERT_EQ(answer.tokens, ample.at(id).tokens) << id;
    for (size_t i = 0; i < answer.logprobs.size(); ++i) {
      error = std::max<double>(
          error, std::abs(answer.logprobs[i] - ample.at(id).logprobs[i]));
    }
  }
  std::cout << restarts << " restarts, largest difference of a log-probability "
            << error << "\n";
  EXPECT_LT(error, 1e-5);
}

TEST(CudaDecoderTest, NoStepIsLaunchedPastTheLastPage) {
  CudaDecodeBackend backend(*EndlessModel(), {.slots = 1}, HostLibrary());
  ASSERT_TRUE(backend.Start(0, MakeRequest(100, 200, 1)));
  EXPECT_THROW(
      {
        for (int i = 0; i < 10; ++i) backend.Step();
      },
      c10::Error);
}

// A longer model: graphs for more than one length.
std::shared_ptr<const ModelWeights> LongModel() {
  auto weights = std::make_shared<ModelWeights>(*EndlessModel());
  weights->config.max_positions = 40'960;
  return weights;
}

TEST(CudaDecoderTest, AGraphIsAsLongAsWhatIsThere) {
  const int64_t first = 1000;
  CudaDecodeBackend backend(*LongModel(), {.slots = 2}, HostLibrary());
  ASSERT_TRUE(backend.Start(0, MakeRequest(first, 3000, 1)));
  ASSERT_TRUE(backend.Reserve(0, first + 3000));
  int64_t tokens = 0;
  std::map<int64_t, int64_t> tokens_of_graph;
  while (tokens < 1100) {
    const auto step = static_cast<int64_t>(backend.Step().size());
    tokens += step;
    tokens_of_graph[WorkOfCudaHost().attended_tokens] += step;
  }
  // 1,024 and its doublings, though the request may take 4,000.
  ASSERT_EQ(tokens_of_graph.size(), 3U);
  EXPECT_TRUE(tokens_of_graph.contains(1024));
  EXPECT_GT(tokens_of_graph[2048], 900);
  EXPECT_TRUE(tokens_of_graph.contains(4096));
}

// Lets the decoder believe in a prompt that ends 20 tokens before the longest
// context; what the prefill did not write is zero.
int StartAtTheEnd(void* decoder,
                  const CudaPrompt* prompts,
                  int64_t num_prompts,
                  const float* logits,
                  char* error) {
  CudaPrompt prompt = prompts[0];
  // Two layers of two heads, keys and values, float32.
  const int64_t page_bytes = kSplitTokens * 2 * 2 * 2 * 16 * 4;
  for (int64_t page = 1; page < prompt.pages.num_pages; ++page) {
    std::memset(prompt.pages.pages[page], 0, page_bytes);
  }
  prompt.num_tokens = 40'940;
  return DapdCudaDecoderStart(decoder, &prompt, num_prompts, logits, error);
}

TEST(CudaDecoderTest, TheLongestContextIsDecodedToItsEnd) {
  CudaLibrary library = HostLibrary();
  library.start = StartAtTheEnd;
  CudaDecodeBackend backend(*LongModel(), {.slots = 1}, library);
  EXPECT_LT(backend.KvBytes(40'960), DecodeBackend::kTooLong);
  EXPECT_EQ(backend.KvBytes(40'961), DecodeBackend::kTooLong);
  ASSERT_TRUE(backend.Start(0, MakeRequest(kSplitTokens, 20, 1)));
  ASSERT_TRUE(backend.Reserve(0, 40'960));
  size_t tokens = 0;
  for (int step = 0; step < 10 && tokens < 20; ++step) {
    tokens += backend.Step().size();
  }
  EXPECT_EQ(tokens, 20U);
  // Not the next doubling of 1,024.
  EXPECT_EQ(WorkOfCudaHost().attended_tokens, 40'960);
}

TEST(CudaDecoderTest, TokensAreTheSameWhereGraphsGrow) {
  const auto run = [](int64_t prompt) {
    CudaDecodeBackend backend(*LongModel(), {.slots = 2}, HostLibrary());
    // The other one takes the graphs along with it.
    EXPECT_TRUE(backend.Start(0, MakeRequest(30, 60, 1)));
    EXPECT_TRUE(backend.Start(1, MakeRequest(prompt, 60, 2)));
    EXPECT_TRUE(backend.Reserve(0, 90));
    EXPECT_TRUE(backend.Reserve(1, prompt + 60));
    std::vector<int32_t> tokens;
    for (size_t all = 0; all < 120;) {
      for (const DecodedToken& token : backend.Step()) {
        ++all;
        if (token.slot == 0) tokens.push_back(token.token);
      }
    }
    return tokens;
  };
  const std::vector<int32_t> expected = run(40);
  EXPECT_EQ(expected.size(), 60U);
  EXPECT_EQ(run(1000), expected);
  EXPECT_EQ(run(2030), expected);
}

TEST(CudaDecoderTest, AStepIsOneGraphAndATokenIsNoWaitOfItsOwn) {
  const auto weights = EndlessModel();
  CudaDecodeBackend backend(*weights, {.slots = 4}, HostLibrary());
  // Calls of launchers: nine a layer, and four around them.
  EXPECT_EQ(WorkOfCudaHost().graph_nodes, 9 * weights->config.num_layers + 4);
  for (int64_t slot = 0; slot < 4; ++slot) {
    ASSERT_TRUE(backend.Start(slot, MakeRequest(20, 100, slot)));
    ASSERT_TRUE(backend.Reserve(slot, 120));
  }
  WorkOfCudaHost() = {};
  std::vector<DecodedToken> first = backend.Step();
  // Four prompts: the first tokens in one launch, one wait.
  EXPECT_EQ(WorkOfCudaHost().launches, 1);
  EXPECT_LE(WorkOfCudaHost().waits, 2);
  WorkOfCudaHost() = {};
  size_t tokens = 0;
  for (int i = 0; i < 10; ++i) tokens += backend.Step().size();
  EXPECT_EQ(tokens, 10U * 4 * 4);
  // Four steps for a wait and a copy, whatever the number of sequences.
  EXPECT_EQ(WorkOfCudaHost().graph_launches, 40);
  EXPECT_EQ(WorkOfCudaHost().waits, 10);
  EXPECT_EQ(WorkOfCudaHost().copies, 10);
  EXPECT_EQ(WorkOfCudaHost().launches, 0);
}

TEST(CudaDecoderTest, PromptsThatPassTogetherAreThoseThatPassAlone) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto decodable = MakeDecodableModel("qwen3", dtype);
    ModelWeights weights = *decodable;
    const auto adapter = MakeAdapter(*decodable);
    CudaPackedWeights packed(
        weights, AdapterForm::kColumns, &adapter->config, nullptr);
    packed.Apply(adapter.get());
    std::vector<std::vector<int32_t>> ids;
    for (const int64_t tokens : {9, 130, 256, 1}) {
      ids.push_back(
          MakeRequest(tokens, 1, static_cast<uint32_t>(tokens)).prompt_ids);
    }
    const auto prefill = [&](const std::vector<size_t>& which) {
      std::vector<PrefillPrompt> prompts;
      for (const size_t i : which) {
        prompts.push_back({ids[i],
                           at::zeros({3,
                                      weights.config.num_layers,
                                      2,
                                      weights.config.num_kv_heads,
                                      kSplitTokens,
                                      weights.config.head_dim},
                                     weights.embedding.options())});
      }
      const at::Tensor logits = PrefillPrompts(weights, packed, prompts);
      return std::pair(prompts, logits);
    };
    const auto [together, logits] = prefill({0, 1, 2, 3});
    EXPECT_EQ(logits.scalar_type(), at::kFloat);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto [alone, own] = prefill({i});
      EXPECT_TRUE(
          at::allclose(own[0], logits[static_cast<int64_t>(i)], 1e-5, 1e-5));
      EXPECT_TRUE(at::allclose(alone[0].pages.to(at::kFloat),
                               together[i].pages.to(at::kFloat),
                               1e-2,
                               1e-2));
      // The slow twin, whose hidden state is rounded alike but not its logits.
      KvCache cache(
          weights.config, static_cast<int64_t>(ids[i].size()), dtype, at::kCPU);
      const at::Tensor expected =
          ApplyHead(*decodable,
                    ForwardPrompt(*decodable,
                                  adapter.get(),
                                  at::tensor(ids[i], at::kInt).to(at::kLong),
                                  &cache));
      const double error =
          ((own - expected).norm() / expected.norm()).item<double>();
      std::cout << dtype << ", " << ids[i].size() << " tokens: error " << error
                << "\n";
      EXPECT_LT(error, dtype == at::kFloat ? 1e-5 : 5e-2);
    }
  }
}

TEST(CudaDecoderTest, AnAdapterOfAnotherRankChangesTheLayout) {
  const auto weights = MakeDecodableModel("qwen3", at::kBFloat16);
  CudaDecodeBackend backend(*weights, {.slots = 2}, HostLibrary());
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

bool no_memory = false;

int CreateUnlessFull(const CudaDecoderSpec* spec,
                     void* workspace,
                     void** decoder,
                     char* error) {
  if (!no_memory) return DapdCudaDecoderCreate(spec, workspace, decoder, error);
  std::snprintf(error, kCudaErrorBytes, "graph: out of memory");
  return 1;
}

TEST(CudaDecoderTest, ADecoderThatFoundNoMemoryIsMadeWhenThereIsSome) {
  const auto weights = MakeDecodableModel("qwen3");
  CudaLibrary library = HostLibrary();
  library.create = CreateUnlessFull;
  no_memory = false;
  CudaDecodeBackend backend(*weights, {.slots = 1}, library);
  const auto expected = Generate(backend, MakeRequests());
  // An adapter in columns has another layout.
  CudaDecodeBackend changing(
      *weights, {.slots = 1, .adapter_form = AdapterForm::kColumns}, library);
  no_memory = true;
  EXPECT_THROW(changing.SetAdapter(MakeAdapter(*weights)),
               c10::OutOfMemoryError);
  EXPECT_THROW(changing.SetAdapter(nullptr), c10::OutOfMemoryError);
  EXPECT_FALSE(changing.Start(0, MakeRequests()[0]));
  EXPECT_THROW(changing.ScoreTokens({1, 2, 3}), c10::OutOfMemoryError);
  no_memory = false;
  for (const auto& [request, answer] : Generate(changing, MakeRequests())) {
    EXPECT_EQ(answer.tokens, expected.at(request).tokens);
  }
}

// More rows than those that a decoder begins with, or more tokens, need another
// graph; the engine puts back what found none.
TEST(CudaDecoderTest, AnswersAreTheSameWhereAGraphFindsNoMemory) {
  const auto weights = LongModel();
  const auto run = [&](bool stable_bits, int64_t without_memory) {
    GenerationEngine engine(
        std::make_unique<CudaDecodeBackend>(
            *weights,
            CudaDecodeOptions{.slots = 4, .stable_bits = stable_bits},
            HostLibrary()),
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
  // With stable bits the longer graph, without them that of more rows, which
  // the first tokens need.
  for (const bool stable_bits : {true, false}) {
    const auto [expected, none] = run(stable_bits, 0);
    EXPECT_EQ(none, 0);
    EXPECT_EQ(expected.at(3).size(), 40U);
    const auto [tight, restarts] = run(stable_bits, 1);
    EXPECT_GT(restarts, 0);
    EXPECT_EQ(tight, expected);
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

TEST(CudaDecoderTest, PromptsThatFindNoMemoryPassInSmallerNumbers) {
  const auto weights = EndlessModel();
  CudaLibrary library = HostLibrary();
  library.start = StartUnlessFull;
  const auto first = [&](bool full) {
    CudaDecodeBackend backend(*weights, {.slots = 4}, library);
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
      // Two of four in the first step, the others behind them.
      if (step == 0) EXPECT_EQ(tokens.size(), full ? 2U : 4U);
    }
    for (auto& [slot, all] : tokens) all.resize(8);
    return tokens;
  };
  EXPECT_EQ(first(true), first(false));
}

TEST(CudaDecoderTest, ScoringThatFindsNoMemoryForItsGraphDisturbsNobody) {
  const auto weights = LongModel();
  const auto run = [&](bool full) {
    CudaDecodeBackend backend(*weights, {.slots = 2}, HostLibrary());
    EXPECT_TRUE(backend.Start(0, MakeRequest(30, 40, 1)));
    EXPECT_TRUE(backend.Reserve(0, 70));
    std::vector<int32_t> tokens;
    for (const DecodedToken& token : backend.Step()) {
      tokens.push_back(token.token);
    }
    if (full) {
      const std::vector<int32_t> ids(1100, 5);
      GraphsWithoutMemory() = 1;
      EXPECT_THROW(backend.ScoreTokens(ids), c10::OutOfMemoryError);
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
      EXPECT_EQ(GraphsWithoutMemory(), 0);
    }
    for (int step = 0; step < 30 && tokens.size() < 40; ++step) {
      for (const DecodedToken& token : backend.Step()) {
        tokens.push_back(token.token);
      }
    }
    return tokens;
  };
  const std::vector<int32_t> expected = run(false);
  EXPECT_EQ(expected.size(), 40U);
  EXPECT_EQ(run(true), expected);
}

TEST(CudaDecoderTest, ASequenceTooLongForTheTablesFitsNoBudget) {
  const auto weights = MakeDecodableModel("qwen3");
  const CudaDecodeBackend backend(*weights, {.slots = 2}, HostLibrary());
  // Two layers of two heads, keys and values, float32.
  const int64_t page = 128 * 2 * 2 * 2 * 16 * 4;
  EXPECT_EQ(backend.KvBytes(1), page);
  EXPECT_EQ(backend.KvBytes(129), 2 * page);
  EXPECT_EQ(backend.KvBytes(2049), DecodeBackend::kTooLong);
}

}  // namespace
}  // namespace dapd
