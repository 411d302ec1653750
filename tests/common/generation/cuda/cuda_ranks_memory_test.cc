// Tests ranks that decode together (tests/fakes/cuda_decode_ranks.h) when one
// of them finds no memory: all go on, and no answer changes.

#include <cstdint>
#include <cstdio>
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
#include "tests/fakes/cuda_decode_api_on_host.h"
#include "tests/fakes/cuda_decode_ranks.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/nccl_ranks.h"
#include "tests/fakes/small_memory.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

// The wants of memory of the calling thread, a rank.
struct Wants {
  int64_t create = 0;  // so many of the next decoders find no memory
  int64_t start = 0;   // and so many of the next passes when they end
  // So many of the next tensors until the first pass has ended succeed, and the
  // following one finds no memory; negative: all succeed.
  int64_t tensors_before = -1;
  bool is_met = false;  // memory was wanted and not found
};
thread_local Wants wants;

int NoMemory(char* error) {
  wants.is_met = true;
  std::snprintf(error, kCudaErrorBytes, "out of memory");
  return 1;
}

int Create(const CudaDecoderSpec* spec,
           void* workspace,
           void** decoder,
           char* error) {
  const int code = DapdCudaDecoderCreate(spec, workspace, decoder, error);
  if (wants.create == 0) return code;
  --wants.create;
  return NoMemory(error);
}

int Start(void* decoder,
          const CudaPrompt* prompts,
          int64_t num_prompts,
          const float* logits,
          char* error) {
  // The simulated device's own tensors follow.
  wants.tensors_before = -1;
  if (wants.start == 0) {
    return DapdCudaDecoderStart(decoder, prompts, num_prompts, logits, error);
  }
  --wants.start;
  return NoMemory(error);
}

CudaDecodeApi Api() {
  CudaDecodeApi api = CudaDecodeApiOnHost();
  api.create = Create;
  api.start = Start;
  return api;
}

// Returns whether the calling rank finds no memory for a tensor.
bool RefusesTensor(size_t /*bytes*/) {
  if (wants.tensors_before < 0 || wants.tensors_before-- != 0) return false;
  wants.is_met = true;
  return true;
}

constexpr int64_t kAnswers = 4;
constexpr int64_t kTokens = 24;

struct Outcome {
  std::map<uint64_t, std::vector<int32_t>> answers;
  std::map<uint64_t, std::vector<int32_t>> scored;  // tokens of prompts
  std::vector<std::string> errors;                  // of single answers
  int64_t restarts = 0;
  int64_t refused_adapters = 0;
  bool has_met_its_want = false;  // by rank 1
};

// Serves some answers on two ranks, on whose rank 1 `wanted` comes true before
// the first prompts, or with `of_adapter` before the adapter.
Outcome Serve(const Wants& wanted, bool of_adapter = false) {
  const auto whole = EndlessShareable(104);
  const auto adapter = MakeAdapter(*whole);
  Outcome outcome;
  RunRanks(2,
           *whole,
           {.slots = kAnswers, .adapter_form = AdapterForm::kColumns},
           Api(),
           [&](Collective& collective,
               SimulatedGroup& group,
               std::unique_ptr<CudaDecodeBackend> own) {
             if (collective.rank() != 0) {
               wants = wanted;
               const absl::Status status =
                   FollowBackend(*own, at::kCPU, collective, group);
               EXPECT_TRUE(status.ok()) << status;
               outcome.has_met_its_want =
                   wants.is_met && wants.create == 0 && wants.start == 0;
               wants = {};
               return;
             }
             GenerationEngine engine(LeadBackend(std::move(own),
                                                 collective,
                                                 group.shared_from_this(),
                                                 [](const absl::Status& lost) {
                                                   ADD_FAILURE() << lost;
                                                 }),
                                     {});
             if (of_adapter) {
               try {
                 engine.SetAdapter(adapter);
               } catch (const c10::OutOfMemoryError&) {
                 ++outcome.refused_adapters;
                 engine.SetAdapter(adapter);
               }
             }
             for (uint32_t i = 0; i < kAnswers; ++i) {
               DecodeRequest request = MakeRequest(20 + i, kTokens, i);
               request.score_prompt = i % 2 == 0;
               EXPECT_TRUE(engine.Submit(i, request).ok());
             }
             while (engine.num_running() > 0) {
               for (const SampledToken& token : engine.Step()) {
                 if (!token.error.ok()) {
                   outcome.errors.push_back(std::string(token.error.message()));
                 } else if (token.prompt_top.has_value()) {
                   outcome.scored[token.id].push_back(token.token);
                 } else {
                   outcome.answers[token.id].push_back(token.token);
                 }
               }
             }
             outcome.restarts = engine.kv_use().restarts;
           });
  return outcome;
}

TEST(CudaRanksMemoryTest, PromptsThatOneRankHasNoMemoryForWaitOnAll) {
  const Outcome ample = Serve({});
  ASSERT_EQ(ample.answers.size(), static_cast<size_t>(kAnswers));
  EXPECT_EQ(ample.answers.at(0).size(), static_cast<size_t>(kTokens));
  ASSERT_EQ(ample.scored.size(), static_cast<size_t>(kAnswers / 2));
  EXPECT_EQ(ample.scored.at(2).size(), 21U);
  // At the end of a pass, and again when it has half as many prompts.
  for (const int64_t times : {1, 2}) {
    const Outcome tight = Serve({.start = times});
    EXPECT_TRUE(tight.has_met_its_want);
    EXPECT_EQ(tight.answers, ample.answers) << times;
    EXPECT_EQ(tight.scored, ample.scored) << times;
    EXPECT_EQ(tight.errors.size(), 0U);
  }
  // Not even for one prompt alone: the answers begin again, fewer at a time.
  const Outcome full = Serve({.start = 3});
  EXPECT_TRUE(full.has_met_its_want);
  EXPECT_EQ(full.answers, ample.answers);
  EXPECT_EQ(full.scored, ample.scored);
  EXPECT_GT(full.restarts, 0);
}

// In the middle of a pass the other ranks wait for this rank's part of the
// sums.
TEST(CudaRanksMemoryTest, ARankWithoutMemoryInAPassLeavesNoOtherWaiting) {
  const Outcome ample = Serve({});
  const RefusingMemory memory(RefusesTensor);
  int64_t places = 0;
  // The very first tensor has the pages of an answer that would run alone.
  for (int64_t tensors = 1;; ++tensors) {
    const Outcome tight = Serve({.tensors_before = tensors});
    EXPECT_EQ(tight.answers, ample.answers) << tensors;
    EXPECT_EQ(tight.scored, ample.scored) << tensors;
    EXPECT_EQ(tight.errors.size(), 0U) << tensors;
    if (!tight.has_met_its_want) break;
    ++places;
  }
  std::cout << "no memory at each of " << places << " places\n";
  EXPECT_GT(places, 50);
}

TEST(CudaRanksMemoryTest, AnAdapterThatOneRankHasNoMemoryForIsRefusedByAll) {
  const Outcome ample = Serve({}, /*of_adapter=*/true);
  EXPECT_EQ(ample.refused_adapters, 0);
  const Outcome tight = Serve({.create = 1}, /*of_adapter=*/true);
  EXPECT_TRUE(tight.has_met_its_want);
  EXPECT_EQ(tight.refused_adapters, 1);
  EXPECT_EQ(tight.answers, ample.answers);
}

}  // namespace
}  // namespace dapd
