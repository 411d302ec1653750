// The CUDA decode backend of several ranks, each a thread with a played device
// of its own (tests/fakes/cuda_on_host.cc) and NCCL played between them
// (tests/fakes/nccl_ranks.cc), against one process with the whole model.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/status_error.h"
#include "common/collective/device_group.h"
#include "common/generation/backend_relay.h"
#include "common/generation/cuda/cuda_decode_backend.h"
#include "tests/fakes/cuda_library_on_host.h"
#include "tests/fakes/cuda_on_host.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/nccl_ranks.h"
#include "tests/fakes/random_shards.h"
#include "tests/fakes/thread_ranks.h"

namespace dapd {
namespace {

// The ranks of a thread's played device.
class PlayedGroup final : public DeviceGroup {
 public:
  PlayedGroup(Collective& collective, double timeout_seconds) {
    char error[kNcclErrorBytes] = "";
    std::string id(kNcclIdBytes, '\0');
    if (collective.rank() == 0) DapdNcclUniqueId(id.data(), error);
    EXPECT_TRUE(collective.Broadcast(&id).ok());
    ranks_ = {.rank = collective.rank(),
              .size = collective.size(),
              .timeout_seconds = timeout_seconds};
    EXPECT_EQ(DapdNcclInit(id.data(),
                           ranks_.rank,
                           ranks_.size,
                           ranks_.timeout_seconds,
                           &ranks_.communicator,
                           error),
              0)
        << error;
  }
  ~PlayedGroup() override {
    if (!is_aborted_) DapdNcclDestroy(ranks_.communicator);
  }

  absl::Status Sum(at::Tensor& /*values*/) override {
    return absl::UnimplementedError("decoding takes none that waits");
  }
  absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> /*parts*/) override {
    return absl::UnimplementedError("decoding takes none that waits");
  }
  NcclRanks nccl() const override { return ranks_; }
  void Abort() override {
    DapdNcclAbort(ranks_.communicator);
    is_aborted_ = true;
  }
  bool is_aborted() const { return is_aborted_; }

 private:
  NcclRanks ranks_;
  bool is_aborted_ = false;
};

struct Shape {
  std::string family = "qwen3";
  int64_t vocab = 104;  // of which each of two ranks computes a half
  bool output_biases = false;
  int64_t heads = 4;
  int64_t kv_heads = 2;
};

std::shared_ptr<const ModelWeights> MakeShareable(
    const Shape& shape, at::ScalarType dtype = at::kFloat) {
  auto weights = std::make_shared<ModelWeights>(*MakeRandomModel(shape.family));
  ModelConfig& config = weights->config;
  config.vocab_size = shape.vocab;
  config.head_dim = 16;
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.intermediate_size = 64;
  config.max_positions = 2048;
  config.output_bias = shape.output_biases;
  config.mlp_bias = shape.output_biases;
  config.qkv_bias = config.qkv_bias || shape.output_biases;
  at::Generator generator = at::detail::createCPUGenerator(5);
  for (const WeightSlot& slot : WeightSlots(*weights)) {
    *slot.target = (at::randn(slot.shape, generator) * 0.3 +
                    (slot.name.find("norm") != std::string::npos ? 1.0 : 0.0))
                       .to(dtype);
  }
  if (config.tied_embeddings) weights->head = weights->embedding;
  return weights;
}

// Calls `body` once a rank, with its backend over its share.
void RunRanks(
    int size,
    const ModelWeights& whole,
    const CudaDecodeOptions& options,
    const CudaLibrary& library,
    const std::function<void(Collective& collective,
                             PlayedGroup& group,
                             std::unique_ptr<CudaDecodeBackend> own)>& body,
    double timeout_seconds = 60) {
  RunThreadRanks(size, [&](Collective& collective) {
    const auto group =
        std::make_shared<PlayedGroup>(collective, timeout_seconds);
    const auto share = ShardModel(whole, {collective.rank(), size});
    auto own = std::make_unique<CudaDecodeBackend>(
        CudaWeightsOfRank(*share),
        options,
        library,
        CudaDecodeRanks{whole.config, share->layout, group});
    body(collective, *group, std::move(own));
  });
}

// By ranks that do what rank 0's relay says, as those of a worker do.
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
           CudaLibraryOnHost(),
           [&](Collective& collective,
               PlayedGroup&,
               std::unique_ptr<CudaDecodeBackend> own) {
             if (collective.rank() != 0) {
               // It fails if this rank has sampled anything else.
               const absl::Status status =
                   FollowBackend(*own, at::kCPU, collective);
               EXPECT_TRUE(status.ok()) << status;
               return;
             }
             const auto leader = LeadBackend(
                 std::move(own), collective, [](const absl::Status& why) {
                   FAIL() << why;
                 });
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
      worst =
          std::max<double>(worst, std::abs(logprobs[i] - answer.logprobs[i]));
    }
  }
  return worst;
}

TEST(CudaTensorParallelTest, RanksDecodeTheTokensOfOneProcess) {
  struct Case {
    Shape shape;
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
        CudaDecodeBackend one(*whole, options, CudaLibraryOnHost());
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

// No answer of it ends early.
std::shared_ptr<const ModelWeights> EndlessShareable(int64_t vocab) {
  auto weights =
      std::make_shared<ModelWeights>(*MakeShareable({"qwen3", vocab}));
  weights->config.eos_token_ids = {1000};
  return weights;
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
             CudaLibraryOnHost(),
             [&](Collective&,
                 PlayedGroup&,
                 std::unique_ptr<CudaDecodeBackend> backend) {
               // As one process has, two gathers a layer and one of the logits.
               EXPECT_EQ(WorkOfCudaHost().graph_nodes,
                         9 * layers + 4 + 2 * layers + of_logits);
               for (int64_t slot = 0; slot < kSlots; ++slot) {
                 ASSERT_TRUE(backend->Start(
                     slot, MakeRequest(20, 100, static_cast<uint32_t>(slot))));
                 ASSERT_TRUE(backend->Reserve(slot, 120));
               }
               WorkOfCudaHost() = {};
               WorkOfNcclRank() = {};
               backend->Step();
               const int64_t first = WorkOfCudaHost().graph_launches;
               // Prompts: an exchange and a gather where the decoder has a
               // gather; sampling; and of the waits as many as one process has.
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
               // Float32: the other rank's part of each sum, and half of the
               // logits.
               EXPECT_EQ(WorkOfNcclRank().bytes_received,
                         kSteps * kSlots * 4 *
                             (2 * layers * hidden + of_logits * vocab / 2));
             });
  }
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
  CudaDecodeBackend one(*whole, options, CudaLibraryOnHost());
  const std::vector<float> expected = score(one);
  RunRanks(2,
           *whole,
           options,
           CudaLibraryOnHost(),
           [&](Collective&,
               PlayedGroup&,
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

int CollectFromLostRanks(void*, CudaDecodedToken*, int64_t*, char* error) {
  std::snprintf(error, kCudaErrorBytes, "a rank did not come in time");
  return kCudaRanksLost;
}

int StartWithoutMemory(
    void*, const CudaPrompt*, int64_t, const float*, char* error) {
  std::snprintf(error, kCudaErrorBytes, "start: out of memory");
  return 1;
}

TEST(CudaTensorParallelTest, WhatFailsOnARankEndsWhatTheRanksDoTogether) {
  const auto whole = EndlessShareable(104);
  CudaLibrary lost = CudaLibraryOnHost();
  lost.collect = CollectFromLostRanks;
  CudaLibrary full = CudaLibraryOnHost();
  full.start = StartWithoutMemory;  // one process would try a smaller pass
  for (const CudaLibrary& library : {lost, full}) {
    RunRanks(2,
             *whole,
             {.slots = 2},
             library,
             [&](Collective&,
                 PlayedGroup& group,
                 std::unique_ptr<CudaDecodeBackend> backend) {
               ASSERT_TRUE(backend->Start(0, MakeRequest(20, 100, 1)));
               ASSERT_TRUE(backend->Start(1, MakeRequest(20, 100, 2)));
               try {
                 backend->Step();
                 FAIL() << "nobody heard of it";
               } catch (const StatusError& error) {
                 EXPECT_TRUE(absl::IsAborted(error.status())) << error.status();
               }
               EXPECT_TRUE(group.is_aborted());
             });
  }
}

thread_local int64_t num_stops = 0;

int CountStop(void* decoder, int64_t slot, char* error) {
  ++num_stops;
  return DapdCudaDecoderStop(decoder, slot, error);
}

// Its communicator is no more, so that even a wait would ask what is gone.
TEST(CudaTensorParallelTest, NothingIsAskedOfADecoderWhoseRanksAreLost) {
  const auto whole = EndlessShareable(104);
  CudaLibrary library = CudaLibraryOnHost();
  library.collect = CollectFromLostRanks;
  library.stop = CountStop;
  RunRanks(2,
           *whole,
           {.slots = 2},
           library,
           [&](Collective&,
               PlayedGroup& group,
               std::unique_ptr<CudaDecodeBackend> backend) {
             num_stops = 0;
             EXPECT_THROW(backend->ScoreTokens({1, 2, 3}), StatusError);
             EXPECT_TRUE(group.is_aborted());
             backend.reset();
             EXPECT_EQ(num_stops, 0);
           });
}

// The others' graphs wait for its part for ever: it is the host that ends that,
// by its time-out or by what NCCL knows.
TEST(CudaTensorParallelTest, ARankThatEndsLeavesNoOtherInItsGraph) {
  const auto whole = EndlessShareable(104);
  struct Case {
    bool is_noticed;
    double timeout_seconds;
    std::string why;
  };
  for (const Case& each : {Case{false, 2, "did not come in time"},
                           Case{true, 60, "an NCCL error"}}) {
    RunRanks(
        2,
        *whole,
        {.slots = 2},
        CudaLibraryOnHost(),
        [&](Collective& collective,
            PlayedGroup& group,
            std::unique_ptr<CudaDecodeBackend> backend) {
          ASSERT_TRUE(backend->Start(0, MakeRequest(20, 100, 1)));
          ASSERT_TRUE(backend->Reserve(0, 120));
          for (int i = 0; i < 3; ++i) backend->Step();
          if (collective.rank() == 1) {
            EndNcclRank(group.nccl().communicator, each.is_noticed);
            return;
          }
          try {
            for (int i = 0; i < 3; ++i) backend->Step();
            FAIL() << "nobody heard of it";
          } catch (const StatusError& error) {
            EXPECT_TRUE(absl::IsAborted(error.status())) << error.status();
            EXPECT_NE(error.status().message().find(each.why),
                      std::string::npos)
                << error.status();
          }
          EXPECT_TRUE(group.is_aborted());
          EXPECT_FALSE(CudaHostIsStuck());
        },
        each.timeout_seconds);
  }
}

// Whatever the others do next while their device waits for its part.
TEST(CudaTensorParallelTest, ARankThatEndsLetsTheOthersScoreAndEnd) {
  const auto whole = EndlessShareable(104);
  for (const bool scores : {true, false}) {
    RunRanks(
        2,
        *whole,
        {.slots = 2},
        CudaLibraryOnHost(),
        [&](Collective& collective,
            PlayedGroup& group,
            std::unique_ptr<CudaDecodeBackend> backend) {
          ASSERT_TRUE(backend->Start(0, MakeRequest(20, 100, 1)));
          ASSERT_TRUE(backend->Reserve(0, 120));
          for (int i = 0; i < 3; ++i) backend->Step();
          if (collective.rank() == 1) {
            EndNcclRank(group.nccl().communicator, /*is_noticed=*/false);
            return;
          }
          backend->Step();  // reads the steps before those that it launches
          EXPECT_TRUE(CudaHostIsStuck());
          if (scores) {
            EXPECT_THROW(backend->ScoreTokens({1, 2, 3}), StatusError);
            EXPECT_TRUE(group.is_aborted());
          }
          backend.reset();
          EXPECT_TRUE(group.is_aborted());
          EXPECT_FALSE(CudaHostIsStuck());
        },
        /*timeout_seconds=*/2);
  }
}

}  // namespace
}  // namespace dapd
