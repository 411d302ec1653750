// The CUDA decode backend on a host that plays the device
// (tests/fakes/cuda_on_host.cc): packing, pages, graphs, rows, sampling state
// and scoring against LibTorch's operations.

#include "common/generation/cuda_decoder.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/aten_backend.h"
#include "common/generation/cuda_decode_backend.h"
#include "common/model/token_logprobs.h"
#include "tests/fakes/random_model.h"

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
          &DapdCudaDecoderStop,
          &DapdCudaDecoderLaunch,
          &DapdCudaDecoderCollect,
          &DapdCudaDecoderLaunched,
          &DapdCudaDecoderRunning};
}

// A random model whose shape the kernels take.
std::shared_ptr<const ModelWeights> MakeModel(
    const std::string& family, at::ScalarType dtype = at::kFloat) {
  auto weights = std::make_shared<ModelWeights>(*MakeRandomModel(family));
  weights->config.head_dim = 16;
  weights->config.max_positions = 2048;
  at::Generator generator = at::detail::createCPUGenerator(5);
  for (const WeightSlot& slot : WeightSlots(*weights)) {
    *slot.target = (at::randn(slot.shape, generator) * 0.3 +
                    (slot.name.find("norm") != std::string::npos ? 1.0 : 0.0))
                       .to(dtype);
  }
  if (weights->config.tied_embeddings) weights->head = weights->embedding;
  return weights;
}

std::shared_ptr<const Adapter> MakeAdapter(const ModelWeights& weights) {
  auto adapter = std::make_shared<Adapter>(MakeFreshAdapter(
      weights.config, {.rank = 5, .alpha = 8, .targets = {}}, 1, at::kCPU));
  at::Generator generator = at::detail::createCPUGenerator(7);
  for (auto& layer : adapter->layers) {
    for (LoraPair& pair : layer) pair.b.normal_(0, 0.1, generator);
  }
  return adapter;
}

DecodeRequest MakeRequest(int64_t prompt, int64_t max_new_tokens, uint32_t i) {
  DecodeRequest request;
  for (int64_t t = 0; t < prompt; ++t) {
    request.prompt_ids.push_back(static_cast<int32_t>((i * 31 + t * 7) % 97));
  }
  request.sampling = {.temperature = i % 3 == 0 ? 0.0 : 1.1,
                      .top_k = i % 2 == 0 ? 20 : 0,
                      .top_p = 0.95,
                      .max_new_tokens = max_new_tokens};
  request.key = {.seed = 11, .step = 3, .example = i, .sample = 0};
  return request;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

// Runs the requests as the engine does: as many at a time as there are slots.
std::map<size_t, Answer> Generate(DecodeBackend& backend,
                                  const std::vector<DecodeRequest>& requests) {
  std::map<size_t, Answer> answers;
  std::vector<int64_t> request_of_slot(static_cast<size_t>(backend.num_slots()),
                                       -1);
  size_t next = 0;
  size_t ended = 0;
  while (ended < requests.size()) {
    for (size_t slot = 0; slot < request_of_slot.size(); ++slot) {
      if (request_of_slot[slot] >= 0 || next == requests.size()) continue;
      request_of_slot[slot] = static_cast<int64_t>(next);
      backend.Start(static_cast<int64_t>(slot), requests[next++]);
    }
    for (const DecodedToken& token : backend.Step()) {
      const int64_t request = request_of_slot[token.slot];
      if (request < 0) continue;  // behind its end
      Answer& answer = answers[static_cast<size_t>(request)];
      answer.tokens.push_back(token.token);
      answer.logprobs.push_back(token.logprob);
      const auto& ends = backend.config().eos_token_ids;
      if (std::find(ends.begin(), ends.end(), token.token) != ends.end() ||
          static_cast<int64_t>(answer.tokens.size()) ==
              requests[request].sampling.max_new_tokens) {
        backend.Stop(token.slot);
        request_of_slot[token.slot] = -1;
        ++ended;
      }
    }
  }
  return answers;
}

std::vector<DecodeRequest> MakeRequests() {
  std::vector<DecodeRequest> requests;
  for (uint32_t i = 0; i < 7; ++i) {
    requests.push_back(MakeRequest(3 + 60 * i, 5 + 9 * i, i));
  }
  // A prompt of whole pages, and one whose answer opens the second page.
  requests.push_back(MakeRequest(256, 20, 8));
  requests.push_back(MakeRequest(127, 20, 9));
  return requests;
}

TEST(CudaDecoderTest, TokensAreThoseOfLibTorchsOperations) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeModel(family);
    for (const bool with_adapter : {false, true}) {
      for (const AdapterForm form :
           {AdapterForm::kMerged, AdapterForm::kColumns}) {
        CudaDecodeBackend ours(
            weights, {.slots = 3, .adapter_form = form}, HostLibrary());
        AtenBackend slow(weights, 3, 0);
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
  const auto weights = MakeModel("qwen3", at::kBFloat16);
  const auto requests = MakeRequests();
  CudaDecodeBackend one(weights, {.slots = 1}, HostLibrary());
  CudaDecodeBackend four(weights, {.slots = 4}, HostLibrary());
  const auto alone = Generate(one, requests);
  for (const auto& [request, answer] : Generate(four, requests)) {
    EXPECT_EQ(answer.tokens, alone.at(request).tokens);
  }
  // The other kind of rows gives the same tokens here, where the host's sums do
  // not depend on them.
  CudaDecodeBackend packed(
      weights, {.slots = 4, .stable_bits = false}, HostLibrary());
  for (const auto& [request, answer] : Generate(packed, requests)) {
    EXPECT_EQ(answer.tokens, alone.at(request).tokens);
  }
}

TEST(CudaDecoderTest, ScoringBetweenStepsDisturbsNobody) {
  const auto weights = MakeModel("qwen3");
  const auto adapter = MakeAdapter(*weights);
  CudaDecodeBackend backend(weights, {.slots = 2}, HostLibrary());
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

TEST(CudaDecoderTest, AnAdapterOfAnotherRankChangesTheLayout) {
  const auto weights = MakeModel("qwen3", at::kBFloat16);
  CudaDecodeBackend backend(weights, {.slots = 2}, HostLibrary());
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

TEST(CudaDecoderTest, ASequenceTooLongForTheTablesFitsNoBudget) {
  const auto weights = MakeModel("qwen3");
  const CudaDecodeBackend backend(weights, {.slots = 2}, HostLibrary());
  // Two layers of two heads, keys and values, float32.
  const int64_t page = 128 * 2 * 2 * 2 * 16 * 4;
  EXPECT_EQ(backend.KvBytes(1), page);
  EXPECT_EQ(backend.KvBytes(129), 2 * page);
  EXPECT_GT(backend.KvBytes(2049), backend.DefaultKvBudget());
}

}  // namespace
}  // namespace dapd
