// Compares the memory that decoding takes on a GPU with the rule that plans a
// worker's memory. The memory is counted on a host that simulates the device
// for LibTorch (tests/fakes/torch_device), for the decoder
// (tests/fakes/cuda_on_host.cc) and for the kernels of a pass over prompts
// (tests/fakes/device_rows_on_host.cc).

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/cuda/cuda_decode_backend.h"
#include "common/generation/cuda/cuda_prefill.h"
#include "common/kernels/decode_attention_math.h"
#include "common/model/spec/decoding_memory.h"
#include "common/model/spec/decoding_shape.h"
#include "common/model/spec/memory_plan.h"
#include "tests/fakes/cuda_decode_api_on_host.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/model_shapes.h"
#include "tests/fakes/prefill_pages.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/torch_device/device_model.h"
#include "tests/fakes/torch_device/torch_device.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

// The rule may count at most this multiple of the allocated memory.
constexpr double kFactor = 1.05;
constexpr int64_t kPrompt = 400;  // tokens, as in plans
constexpr int64_t kRank = 8;

ModelConfig SmallShape() {
  ModelConfig config = SixteenthOfFourBillion();
  config.vocab_size = 1000;
  config.num_layers = 2;
  config.max_positions = 2048;
  config.eos_token_ids = {1000};  // no answer ends early
  return config;
}

Config MakeConfig() {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  config.lora.rank = kRank;
  config.rollout.slots = 8;
  config.rollout.max_new_tokens = 20;
  return config;
}

// Makes the model in bfloat16 on the CPU.
std::shared_ptr<const ModelWeights> MakeModel(const ModelConfig& config) {
  auto weights = std::make_shared<ModelWeights>();
  weights->config = config;
  DrawWeights(4, 0.05, at::kBFloat16, weights.get());
  return weights;
}

Adapter AdapterOnDevice(const ModelConfig& model) {
  return OnSimulatedDevice(
      MakeTrainedAdapter(model, {.rank = kRank, .alpha = 16, .targets = {}}));
}

void ExpectCovers(double counted, int64_t allocated, const std::string& what) {
  std::cout << what << ": " << allocated << " bytes, the rule has "
            << counted / static_cast<double>(allocated) << " of them\n";
  EXPECT_GE(counted, static_cast<double>(allocated)) << what;
  EXPECT_LE(counted, kFactor * static_cast<double>(allocated)) << what;
}

// Returns the plan without the items that the simulated device does not have.
double PlannedBytes(const Config& config, const ModelConfig& model) {
  double bytes = 0;
  for (const MemoryItem& item : PlanMemory(config, model).rollout.items) {
    if (item.what != "program" && item.what != "cuBLAS and graphs") {
      bytes += item.bytes;
    }
  }
  return bytes;
}

TEST(CudaMemoryTest, AWorkerTakesWhatItsPlanSays) {
  const auto host = MakeModel(SmallShape());
  const Config config = MakeConfig();
  const int64_t before = WorkOfDevice().live_bytes;
  ResetWorkOfDevice();
  {
    ModelWeights weights = *OnSimulatedDevice(*host);
    CudaDecodeBackend backend(std::move(weights),
                              {.slots = config.rollout.slots},
                              CudaDecodeApiOnHost());
    backend.SetAdapter(
        std::make_shared<const Adapter>(AdapterOnDevice(host->config)));
    std::vector<DecodeRequest> requests;
    for (uint32_t i = 0; i < config.rollout.slots; ++i) {
      requests.push_back(
          MakeRequest(kPrompt, config.rollout.max_new_tokens, i));
    }
    EXPECT_EQ(Generate(backend, requests).size(), requests.size());
  }
  ExpectCovers(PlannedBytes(config, host->config),
               WorkOfDevice().peak_bytes - before,
               "a worker");
}

// Returns the bytes of a pass over the prompts, without their pages.
int64_t AllocatedByPass(const ModelWeights& host,
                        int64_t num_prompts,
                        bool with_adapter) {
  const at::NoGradGuard no_grad;
  ModelWeights weights = *OnSimulatedDevice(host);
  const Adapter adapter = AdapterOnDevice(weights.config);
  const PackedWeights packed(weights,
                             AdapterForm::kColumns,
                             with_adapter ? &adapter.config : nullptr,
                             /*merge=*/nullptr);
  std::vector<DecodeRequest> requests;
  std::vector<PrefillPrompt> prompts;
  for (int64_t i = 0; i < num_prompts; ++i) {
    requests.push_back(MakeRequest(kPrompt, 1, static_cast<uint32_t>(i)));
  }
  for (const DecodeRequest& request : requests) {
    prompts.push_back(
        {request.prompt_ids, EmptyPages(weights, NumPages(kPrompt))});
  }
  ResetWorkOfDevice();
  const int64_t before = WorkOfDevice().live_bytes;
  PrefillPrompts(weights, packed, prompts);
  return WorkOfDevice().peak_bytes - before;
}

TEST(CudaMemoryTest, APassOverPromptsTakesWhatTheRuleSays) {
  struct Case {
    std::string name;
    ModelConfig model = SmallShape();
    bool with_adapter = true;
  };
  std::vector<Case> cases = {{"an MLP that is wide"},
                             {"without an adapter"},
                             {"an MLP that is narrow"},
                             {"many heads"},
                             {"a large vocabulary"}};
  cases[1].with_adapter = false;
  cases[2].model.intermediate_size = 64;
  cases[3].model.num_heads = 16;
  cases[3].model.num_kv_heads = 16;
  cases[3].model.head_dim = 64;
  cases[4].model.vocab_size = 60'000;
  cases[4].model.hidden_size = 16;
  for (const Case& each : cases) {
    const auto host = MakeModel(each.model);
    Config config = MakeConfig();
    if (!each.with_adapter) config.lora.targets.clear();
    const DecodingMemory rule = DecodingMemoryOf(config, each.model, kPrompt);
    // A text that is scored has one page.
    const int64_t page = kPageTokens * each.model.num_layers * 2 *
                         each.model.num_kv_heads * each.model.head_dim * 2;
    // The longest pass ends with the prompt that gives it enough tokens.
    const int64_t most = (kPrefillTokens - 1 + kPrompt) / kPrompt;
    for (const int64_t prompts : {int64_t{1}, most}) {
      const double counted = prompts == 1 ? rule.least_prompts : rule.prompts;
      ExpectCovers(counted - static_cast<double>(page),
                   AllocatedByPass(*host, prompts, each.with_adapter),
                   each.name + ", " + std::to_string(prompts) + " prompts");
    }
  }
}

CudaLinear LinearOf(int64_t in, int64_t out, int64_t lora) {
  return {.in = in, .out = out, .lora = lora};
}

TEST(CudaMemoryTest, TheDecodersWorkspaceIsTheRules) {
  const ModelConfig model = SmallShape();
  for (const auto precision : {Precision::kBfloat16, Precision::kFloat32}) {
    for (const int64_t ranks : {1, 2}) {
      for (const int64_t slots : {1, 5, 32, 1000}) {
        Config config = MakeConfig();
        config.model.precision = precision;
        config.rollout.tensor_parallel = ranks;
        config.rollout.slots = slots;
        const bool is_wide = precision == Precision::kFloat32;
        const int64_t lora = is_wide ? 0 : kRank;
        const int64_t heads = model.num_heads / ranks;
        const int64_t kv_heads = model.num_kv_heads / ranks;
        const int64_t intermediate = model.intermediate_size / ranks;
        const CudaDecoderLayer layer{
            .qkv = LinearOf(model.hidden_size,
                            (heads + 2 * kv_heads) * model.head_dim,
                            3 * lora),
            .o = LinearOf(heads * model.head_dim, model.hidden_size, lora),
            .gate_up = LinearOf(model.hidden_size, 2 * intermediate, 2 * lora),
            .down = LinearOf(intermediate, model.hidden_size, lora)};
        const int64_t decoded = std::min(slots, kGpuDecodeSlots);
        const CudaDecoderSpec spec{
            .number = is_wide ? CudaNumber::kFloat32 : CudaNumber::kBFloat16,
            .ranks = {.size = static_cast<int>(ranks)},
            .hidden = model.hidden_size,
            .intermediate = intermediate,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = model.head_dim,
            .vocab = model.vocab_size,
            .num_layers = 1,
            .layers = &layer,
            .slots = decoded + 1,
            .max_tokens = model.max_positions,
            .max_rows = GpuDecodeRows(slots)};
        // The plan counts what ranks gather with the sums of prompts.
        const int64_t parts =
            ranks == 1 ? 0 : ranks * spec.max_rows * model.hidden_size * 4;
        EXPECT_EQ(DecodingMemoryOf(config, model, kPrompt).workspace +
                      static_cast<double>(parts),
                  static_cast<double>(DapdCudaDecoderWorkspace(&spec)))
            << NameOf(precision) << ", " << ranks << " ranks, " << slots
            << " slots";
      }
    }
  }
}

// If another rank is lost, a wait of LibTorch's would never end.
TEST(CudaMemoryTest, ScoringWaitsForNothingButTheDecodersEvents) {
  const auto host = MakeModel(SmallShape());
  CudaDecodeBackend backend(
      *OnSimulatedDevice(*host), {.slots = 2}, CudaDecodeApiOnHost());
  ResetWorkOfDevice();
  EXPECT_EQ(backend.ScoreTokens({1, 2, 3, 4, 5}).size(), 4U);
  EXPECT_EQ(WorkOfDevice().waits, 0);
  EXPECT_EQ(WorkOfDevice().pageable_copies, 0);
}

}  // namespace
}  // namespace dapd
