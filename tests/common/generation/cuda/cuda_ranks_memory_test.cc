// Tests ranks that decode together (tests/fakes/cuda_decode_ranks.h) when one
// of them finds no memory: all go on, and no answer changes.

#include <array>
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
#include "tests/fakes/cuda_on_host.h"
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
  // So many of the next streams, first launches of a step, instantiated graphs
  // and uploads of graphs find no memory.
  int64_t streams = 0;
  int64_t steps = 0;
  int64_t graphs = 0;
  int64_t uploads = 0;
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
  // The simulated device's own tensors do not count.
  const int64_t tensors_before = std::exchange(wants.tensors_before, -1);
  const int code = DapdCudaDecoderCreate(spec, workspace, decoder, error);
  wants.tensors_before = tensors_before;
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

// Makes the calling rank want memory; the simulated device keeps a part of it.
void Want(const Wants& wanted) {
  wants = wanted;
  StreamsWithoutMemory() = wanted.streams;
  EmbeddingsWithoutMemory() = wanted.steps;
  GraphsWithoutMemory() = wanted.graphs;
  GraphUploadsWithoutMemory() = wanted.uploads;
}

// Returns whether what the calling rank wanted was wanted, and not found.
bool HasMetItsWant(const Wants& wanted) {
  const bool of_device =
      wanted.streams + wanted.steps + wanted.graphs + wanted.uploads > 0;
  const bool all_met =
      wants.create == 0 && wants.start == 0 && StreamsWithoutMemory() == 0 &&
      EmbeddingsWithoutMemory() == 0 && GraphsWithoutMemory() == 0 &&
      GraphUploadsWithoutMemory() == 0;
  return (wants.is_met || of_device) && all_met;
}

constexpr int64_t kAnswers = 4;
constexpr int64_t kTokens = 24;

// The answers that Serve asks for.
struct Work {
  int64_t prompt_tokens = 20;
  int64_t more_tokens = 0;  // so many more for each next answer
  bool stable_bits = true;
  bool of_adapter = false;  // the want comes before the adapter
  int wanting_rank = 1;
};

struct Outcome {
  std::map<uint64_t, std::vector<int32_t>> answers;
  std::map<uint64_t, std::vector<int32_t>> scored;  // tokens of prompts
  std::vector<std::string> errors;                  // of single answers
  int64_t restarts = 0;
  int64_t refused_adapters = 0;
  bool has_met_its_want = false;       // of the wanting rank
  std::array<int64_t, 2> graphs = {};  // at the end, by rank
  std::array<int64_t, 2> captures = {};
};

// Serves some answers on two ranks, on whose wanting rank `wanted` comes true
// before the first prompts, or before the adapter.
Outcome Serve(const Wants& wanted, const Work& work = {}) {
  const auto whole = EndlessShareable(104);
  const auto adapter = MakeAdapter(*whole);
  Outcome outcome;
  RunRanks(2,
           *whole,
           {.slots = kAnswers,
            .adapter_form = AdapterForm::kColumns,
            .stable_bits = work.stable_bits},
           Api(),
           [&](Collective& collective,
               SimulatedGroup& group,
               std::unique_ptr<CudaDecodeBackend> own) {
             const bool is_wanting = collective.rank() == work.wanting_rank;
             const auto rank = static_cast<size_t>(collective.rank());
             WorkOfCudaHost() = {};
             if (is_wanting) Want(wanted);
             const auto note = [&] {
               outcome.graphs[rank] = GraphsOfCudaHost();
               outcome.captures[rank] = WorkOfCudaHost().captures;
               if (is_wanting) {
                 outcome.has_met_its_want = HasMetItsWant(wanted);
                 Want({});
               }
             };
             if (collective.rank() != 0) {
               const absl::Status status =
                   FollowBackend(*own, at::kCPU, collective, group);
               EXPECT_TRUE(status.ok()) << status;
               note();
               return;
             }
             GenerationEngine engine(LeadBackend(std::move(own),
                                                 collective,
                                                 group.shared_from_this(),
                                                 [](const absl::Status& lost) {
                                                   ADD_FAILURE() << lost;
                                                 }),
                                     {});
             if (work.of_adapter) {
               try {
                 engine.SetAdapter(adapter);
               } catch (const c10::OutOfMemoryError&) {
                 ++outcome.refused_adapters;
                 engine.SetAdapter(adapter);
               }
             }
             for (uint32_t i = 0; i < kAnswers; ++i) {
               DecodeRequest request = MakeRequest(
                   work.prompt_tokens + i, kTokens + i * work.more_tokens, i);
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
             note();
           });
  return outcome;
}

// Serves the work once for each want on each rank, and expects the answers of
// `ample` although the want was met.
std::vector<Outcome> ServeInNeed(const std::vector<Wants>& all_wanted,
                                 Work work,
                                 const Outcome& ample) {
  std::vector<Outcome> outcomes;
  for (const Wants& wanted : all_wanted) {
    for (const int rank : {0, 1}) {
      work.wanting_rank = rank;
      outcomes.push_back(Serve(wanted, work));
      EXPECT_TRUE(outcomes.back().has_met_its_want);
      EXPECT_EQ(outcomes.back().answers, ample.answers);
      EXPECT_EQ(outcomes.back().errors.size(), 0U);
    }
  }
  return outcomes;
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
  const Outcome ample = Serve({}, {.of_adapter = true});
  EXPECT_EQ(ample.refused_adapters, 0);
  for (const Outcome& tight : ServeInNeed({{.create = 1},
                                           {.streams = 1},
                                           {.steps = 1},
                                           {.graphs = 1},
                                           {.uploads = 1}},
                                          {.of_adapter = true},
                                          ample)) {
    EXPECT_EQ(tight.refused_adapters, 1);
  }
}

// Each of its tensors finds no memory once: the workspace of a decoder, too,
// which is made before the ranks wait for each other.
TEST(CudaRanksMemoryTest, AnAdapterIsRefusedByAllWhereverARankWantsMemory) {
  const Outcome ample = Serve({}, {.of_adapter = true});
  const RefusingMemory memory(RefusesTensor);
  int64_t places = 0;
  while (true) {
    const Outcome tight =
        Serve({.tensors_before = places}, {.of_adapter = true});
    ASSERT_TRUE(tight.has_met_its_want) << places;
    if (tight.refused_adapters == 0) break;  // it was a tensor of an answer
    EXPECT_EQ(tight.refused_adapters, 1) << places;
    EXPECT_EQ(tight.answers, ample.answers) << places;
    EXPECT_EQ(tight.errors.size(), 0U) << places;
    ++places;
  }
  std::cout << "no memory at each of " << places << " places\n";
  EXPECT_GT(places, 50);
}

TEST(CudaRanksMemoryTest, AGraphOfFewerRowsIsNeededOnNoRank) {
  // Answers that end one after another need graphs of 2 rows and of 1 row.
  const Work ending{.more_tokens = 12, .stable_bits = false};
  const Outcome ample = Serve({}, ending);
  ASSERT_EQ(ample.answers.size(), static_cast<size_t>(kAnswers));
  EXPECT_EQ(ample.graphs[0], 3);
  for (const Outcome& tight :
       ServeInNeed({{.graphs = 1}, {.uploads = 1}}, ending, ample)) {
    EXPECT_EQ(tight.restarts, 0);
    EXPECT_EQ(tight.graphs[0], 2);
    EXPECT_EQ(tight.graphs[1], 2);
    EXPECT_EQ(tight.captures[0], tight.captures[1]);
  }
}

TEST(CudaRanksMemoryTest, AnswersBeginAgainWhereALongerGraphFindsNoMemory) {
  // They grow beyond the 1,024 tokens of the first graph.
  const Work growing{.prompt_tokens = 1'010};
  const Outcome ample = Serve({}, growing);
  ASSERT_EQ(ample.answers.size(), static_cast<size_t>(kAnswers));
  EXPECT_EQ(ample.restarts, 0);
  for (const Outcome& tight : ServeInNeed(
           {{.steps = 1}, {.graphs = 1}, {.uploads = 1}}, growing, ample)) {
    EXPECT_GT(tight.restarts, 0);
    EXPECT_EQ(tight.graphs[0], tight.graphs[1]);
  }
}

}  // namespace
}  // namespace dapd
