// Compares the CUDA decode backend of several ranks
// (tests/fakes/cuda_decode_ranks.h) with one process that has the whole model.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/backend_relay.h"
#include "common/generation/cuda/cuda_decode_backend.h"
#include "common/generation/engine.h"
#include "common/model/spec/decoding_memory.h"
#include "tests/fakes/cuda_decode_api_on_host.h"
#include "tests/fakes/cuda_decode_ranks.h"
#include "tests/fakes/cuda_on_host.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/nccl_ranks.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

// Runs ranks that follow rank 0's relay, as a worker's ranks do.
std::map<size_t, Answer> GenerateOnRanks(
    int size,
    const ModelWeights& whole,
    const CudaDecodeOptions& options,
    const std::shared_ptr<const Adapter>& adapter,
    const std::vector<DecodeRequest>& requests) {
  std::map<size_t, Answer> answers;
  RunRanks(size,
           whole,
           options,
           CudaDecodeApiOnHost(),
           [&](Collective& collective,
               SimulatedGroup& group,
               std::unique_ptr<CudaDecodeBackend> own) {
             WorkOfNcclRank() = {};
             if (collective.rank() != 0) {
               // The call fails if this rank has sampled other tokens.
               const absl::Status status =
                   FollowBackend(*own, at::kCPU, collective, group);
               EXPECT_TRUE(status.ok()) << status;
               return;
             }
             const auto leader =
                 LeadBackend(std::move(own),
                             collective,
                             group.shared_from_this(),
                             [](const absl::Status& why) { FAIL() << why; });
             if (adapter != nullptr) leader->SetAdapter(adapter);
             answers = Generate(*leader, requests);
           });
  return answers;
}

double LargestDifference(const std::map<size_t, Answer>& found,
                         const std::map<size_t, Answer>& expected) {
  double worst = 0.0;
  for (const auto& [request, answer] : expected) {
    const std::vector<float>& logprobs = found.at(request).logprobs;
    for (size_t i = 0; i < std::min(logprobs.size(), answer.logprobs.size());
         ++i) {
      worst = Worse(worst, std::abs(logprobs[i] - answer.logprobs[i]));
    }
  }
  return worst;
}

TEST(CudaTensorParallelTest, RanksDecodeTheTokensOfOneProcess) {
  struct Case {
    ShareableShape shape;
    int ranks;
  };
  for (const Case& c : {Case{{"qwen3", 104}, 2},
                        Case{{"qwen3", 97}, 2},
                        Case{{"qwen2", 104}, 2},
                        Case{{"llama", 104, /*output_biases=*/true}, 2},
                        Case{{"qwen3", 112, false, 8, 4}, 4}}) {
    const auto whole = MakeShareable(c.shape);
    for (const bool with_adapter : {false, true}) {
      for (const AdapterForm form :
           {AdapterForm::kMerged, AdapterForm::kColumns}) {
        const CudaDecodeOptions options{.slots = 3, .adapter_form = form};
        const auto adapter = with_adapter ? MakeAdapter(*whole) : nullptr;
        CudaDecodeBackend one(*whole, options, CudaDecodeApiOnHost());
        if (with_adapter) one.SetAdapter(adapter);
        const auto requests = MakeRequests();
        const auto expected = Generate(one, requests);
        const auto found =
            GenerateOnRanks(c.ranks, *whole, options, adapter, requests);
        ASSERT_EQ(found.size(), expected.size());
        for (const auto& [request, answer] : expected) {
          ASSERT_EQ(found.at(request).tokens, answer.tokens)
              << c.shape.family << ", " << c.ranks << " ranks, request "
              << request;
        }
        const double error = LargestDifference(found, expected);
        std::cout << c.shape.family << " of " << c.shape.vocab << " tokens, "
                  << c.ranks << " ranks: largest difference of a "
                  << "log-probability " << error << "\n";
        EXPECT_LT(error, 2e-4);
      }
    }
  }
}

TEST(CudaTensorParallelTest, BitsDoNotDependOnNeighboursOrTheNumberOfSlots) {
  const auto whole = MakeShareable({"qwen3", 112, false, 8, 4}, at::kBFloat16);
  const auto adapter = MakeAdapter(*whole);
  const auto requests = MakeRequests();
  const auto alone =
      GenerateOnRanks(4, *whole, {.slots = 1}, adapter, requests);
  const auto together =
      GenerateOnRanks(4, *whole, {.slots = 4}, adapter, requests);
  ASSERT_EQ(together.size(), alone.size());
  for (const auto& [request, answer] : alone) {
    EXPECT_EQ(together.at(request).tokens, answer.tokens);
  }
}

struct EngineOnRanks {
  std::map<uint64_t, Answer> answers;
  KvUse use;
};

// Runs four answers on two ranks, whose longest takes three pages. Rank 1 may
// take `host_pages` pages of its host; a negative number stands for all.
EngineOnRanks RunEngineOnRanks(const ModelWeights& whole,
                               int64_t pages,
                               int64_t host_pages) {
  EngineOnRanks run;
  RunRanks(
      2,
      whole,
      {.slots = 4},
      CudaDecodeApiOnHost(),
      [&](Collective& collective,
          SimulatedGroup&,
          std::unique_ptr<CudaDecodeBackend> own) {
        if (collective.rank() != 0) {
          PagesOfHostMemory() = host_pages;
          const absl::Status status = FollowBackend(*own, at::kCPU, collective);
          PagesOfHostMemory() = -1;
          EXPECT_TRUE(status.ok()) << status;
          return;
        }
        const int64_t page = own->KvBytes(1);
        GenerationEngine engine(
            LeadBackend(std::move(own),
                        collective,
                        [](const absl::Status& why) { ADD_FAILURE() << why; }),
            {.kv_memory_bytes = pages * page});
        for (uint32_t i = 0; i < 4; ++i) {
          EXPECT_TRUE(engine.Submit(i, MakeRequest(100 + i, 200, i)).ok());
        }
        while (engine.num_running() > 0) {
          for (const SampledToken& token : engine.Step()) {
            run.answers[token.id].tokens.push_back(token.token);
            run.answers[token.id].logprobs.push_back(token.logprob);
          }
        }
        run.use = engine.kv_use();
      });
  return run;
}

TEST(CudaTensorParallelTest, AnswersThatWereOnTheHostHaveTheSameBits) {
  const auto whole = EndlessShareable(104);
  const EngineOnRanks ample = RunEngineOnRanks(*whole, 100, -1);
  EXPECT_EQ(ample.use.cost.swaps, 0);
  const EngineOnRanks tight = RunEngineOnRanks(*whole, 9, -1);
  EXPECT_GT(tight.use.cost.swaps, 0);
  EXPECT_EQ(tight.use.cost.recomputed_tokens, 0);
  ASSERT_EQ(tight.answers.size(), 4U);
  for (const auto& [id, answer] : tight.answers) {
    EXPECT_EQ(answer.tokens, ample.answers.at(id).tokens) << id;
    EXPECT_EQ(answer.logprobs, ample.answers.at(id).logprobs) << id;
  }
}

TEST(CudaTensorParallelTest, WhatOneHostHasNoMemoryForIsKeptOnNone) {
  const auto whole = EndlessShareable(104);
  const EngineOnRanks ample = RunEngineOnRanks(*whole, 100, -1);
  const EngineOnRanks tight = RunEngineOnRanks(*whole, 9, 0);
  EXPECT_EQ(tight.use.cost.swaps, 0);
  EXPECT_GT(tight.use.restarts, 0);
  for (const auto& [id, answer] : tight.answers) {
    EXPECT_EQ(answer.tokens, ample.answers.at(id).tokens) << id;
  }
}

TEST(CudaTensorParallelTest, AStepIsOneGraphWithItsGathersAndWaitsForNoRank) {
  constexpr int64_t kSlots = 4;
  constexpr int64_t kSteps = 40;
  for (const int64_t vocab : {104, 97}) {
    const auto whole = EndlessShareable(vocab);
    const int64_t layers = whole->config.num_layers;
    const int64_t hidden = whole->config.hidden_size;
    const int64_t of_logits = vocab % 8 == 0 ? 1 : 0;
    RunRanks(2,
             *whole,
             {.slots = kSlots},
             CudaDecodeApiOnHost(),
             [&](Collective&,
                 SimulatedGroup&,
                 std::unique_ptr<CudaDecodeBackend> backend) {
               // A graph has the nodes of one process, two gathers for each
               // layer and one gather of the logits, each with its event, and
               // NCCL's wait at the beginning.
               EXPECT_EQ(WorkOfCudaHost().graph_nodes,
                         9 * layers + 4 + 2 * (2 * layers + of_logits) + 1);
               EXPECT_LE(WorkOfCudaHost().graph_nodes, NodesOfStep(layers, 2));
               for (int64_t slot = 0; slot < kSlots; ++slot) {
                 ASSERT_TRUE(backend->Start(
                     slot, MakeRequest(20, 100, static_cast<uint32_t>(slot))));
                 ASSERT_TRUE(backend->Reserve(slot, 120));
               }
               WorkOfCudaHost() = {};
               WorkOfNcclRank() = {};
               backend->Step();
               const int64_t first = WorkOfCudaHost().graph_launches;
               // Prompts take an exchange and a gather for each gather of the
               // decoder, and the sampling; there are as many waits as in one
               // process.
               EXPECT_EQ(WorkOfNcclRank().exchanges, 2 * layers);
               EXPECT_EQ(WorkOfNcclRank().gathers,
                         2 * layers + first * (2 * layers + of_logits));
               EXPECT_EQ(WorkOfCudaHost().launches, 1 + 2 * 2 * layers);
               EXPECT_LE(WorkOfCudaHost().waits, 2);

               WorkOfCudaHost() = {};
               WorkOfNcclRank() = {};
               size_t tokens = 0;
               for (int i = 0; i < 10; ++i) tokens += backend->Step().size();
               EXPECT_EQ(tokens, static_cast<size_t>(kSteps * kSlots));
               EXPECT_EQ(WorkOfCudaHost().graph_launches, kSteps);
               EXPECT_EQ(WorkOfCudaHost().waits, 10);
               EXPECT_EQ(WorkOfCudaHost().copies, 10);
               EXPECT_EQ(WorkOfCudaHost().launches, 0);
               EXPECT_EQ(WorkOfNcclRank().gathers,
                         kSteps * (2 * layers + of_logits));
               EXPECT_EQ(WorkOfNcclRank().exchanges, 0);
               EXPECT_EQ(WorkOfNcclRank().sums, 0);
               // In float32 a rank receives the other rank's part of each sum
               // and half of the logits.
               EXPECT_EQ(WorkOfNcclRank().bytes_received,
                         kSteps * kSlots * 4 *
                             (2 * layers * hidden + of_logits * vocab / 2));
             });
  }
}

// The other ranks of a worker wait for it before they sample the first token.
TEST(CudaTensorParallelTest, AnAdapterReachesAllOtherRanksByOneBroadcast) {
  const auto whole = MakeShareable({"qwen3", 112, false, 8, 4});
  const auto adapter = MakeAdapter(*whole);
  int64_t bytes = 0;
  for (const at::Tensor& tensor : adapter->Tensors()) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  RunRanks(4,
           *whole,
           {.slots = 1, .adapter_form = AdapterForm::kColumns},
           CudaDecodeApiOnHost(),
           [&](Collective& collective,
               SimulatedGroup& group,
               std::unique_ptr<CudaDecodeBackend> own) {
             WorkOfNcclRank() = {};
             if (collective.rank() != 0) {
               const absl::Status status =
                   FollowBackend(*own, at::kCPU, collective, group);
               EXPECT_TRUE(status.ok()) << status;
             } else {
               LeadBackend(std::move(own),
                           collective,
                           group.shared_from_this(),
                           [](const absl::Status& why) { FAIL() << why; })
                   ->SetAdapter(adapter);
             }
             EXPECT_EQ(WorkOfNcclRank().broadcasts, 1);
             // A rank receives the adapter once, beside the parts of sums.
             std::cout << "rank " << collective.rank() << " received "
                       << WorkOfNcclRank().bytes_received << " bytes, and the "
                       << "adapter has " << bytes << "\n";
             if (collective.rank() != 0) {
               EXPECT_GE(WorkOfNcclRank().bytes_received, bytes);
             }
           });
}

TEST(CudaTensorParallelTest, ScoresAndAnotherLayoutAreThoseOfOneProcess) {
  const auto whole = MakeShareable({"qwen3", 104}, at::kFloat);
  const auto adapter = MakeAdapter(*whole);
  const CudaDecodeOptions options{.slots = 2,
                                  .adapter_form = AdapterForm::kColumns};
  const auto score = [&](DecodeBackend& backend) {
    const std::vector<int32_t> ids = MakeRequest(150, 1, 4).prompt_ids;
    std::vector<float> scores = backend.ScoreTokens(ids);
    backend.SetAdapter(adapter);
    for (const float each : backend.ScoreTokens(ids)) scores.push_back(each);
    backend.SetAdapter(nullptr);
    for (const float each : backend.ScoreTokens(ids)) scores.push_back(each);
    return scores;
  };
  CudaDecodeBackend one(*whole, options, CudaDecodeApiOnHost());
  const std::vector<float> expected = score(one);
  RunRanks(2,
           *whole,
           options,
           CudaDecodeApiOnHost(),
           [&](Collective&,
               SimulatedGroup&,
               std::unique_ptr<CudaDecodeBackend> backend) {
             EXPECT_EQ(backend->config().num_heads, whole->config.num_heads);
             EXPECT_EQ(2 * backend->KvBytes(1), one.KvBytes(1));
             const std::vector<float> found = score(*backend);
             ASSERT_EQ(found.size(), expected.size());
             for (size_t i = 0; i < found.size(); ++i) {
               EXPECT_NEAR(found[i], expected[i], 2e-4F) << i;
             }
           });
}

}  // namespace
}  // namespace dapd
