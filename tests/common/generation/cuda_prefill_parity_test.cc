// Compares several prompts in one pass through the packed weights on a GPU,
// with the adapter in columns, with the decoder on the CPU. Skips itself
// without a GPU; dapd_torch_device_test runs it on a device that the host
// simulates.

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/cuda/cuda_prefill.h"
#include "common/kernels/decode_attention_math.h"
#include "common/model/reference/decoder.h"
#include "common/model/weights/placement.h"
#include "tests/fakes/cuda_precisions.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/model_on_device.h"
#include "tests/fakes/prefill_pages.h"
#include "tests/fakes/same_bits.h"

namespace dapd {
namespace {

class CudaPrefillParityTest : public CudaPrecisionTest {
 protected:
  void SetUp() override {
    CudaPrecisionTest::SetUp();
    if (IsSkipped()) return;
    SetUpCuda(/*deterministic=*/false, at::globalContext());
  }
};

struct Prefilled {
  at::Tensor logits;              // [prompts, vocab]
  std::vector<at::Tensor> pages;  // of each prompt
};

Prefilled Prefill(const ModelWeights& weights,
                  const PackedWeights& packed,
                  const std::vector<std::vector<int32_t>>& ids) {
  std::vector<PrefillPrompt> prompts;
  for (const std::vector<int32_t>& prompt : ids) {
    prompts.push_back(
        {prompt,
         EmptyPages(weights, NumPages(static_cast<int64_t>(prompt.size())))});
  }
  Prefilled prefilled{PrefillPrompts(weights, packed, prompts), {}};
  for (const PrefillPrompt& prompt : prompts) {
    prefilled.pages.push_back(prompt.pages);
  }
  return prefilled;
}

// Holds logits [vocab] and keys and values [layers, 2, K, tokens, D] of a
// prompt, by the reference.
struct Reference {
  at::Tensor logits;
  at::Tensor keys_values;
};

Reference Expect(const ModelWeights& weights,
                 const Adapter& adapter,
                 const std::vector<int32_t>& ids) {
  const ModelConfig& config = weights.config;
  const auto tokens = static_cast<int64_t>(ids.size());
  KvCache cache(config, tokens, weights.dtype(), at::kCPU);
  const at::Tensor hidden = ForwardPrompt(
      weights, &adapter, at::tensor(ids, at::kInt).to(at::kLong), &cache);
  Reference reference{ApplyHead(weights, hidden)[0], {}};
  std::vector<at::Tensor> layers;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    layers.push_back(
        at::stack({cache.Keys(layer, tokens), cache.Values(layer, tokens)}));
  }
  reference.keys_values = at::stack(layers);
  return reference;
}

// Returns the keys and values [layers, 2, K, tokens, D] in a prompt's pages.
at::Tensor InPages(const at::Tensor& pages, int64_t tokens) {
  return pages.permute({1, 2, 3, 0, 4, 5}).flatten(3, 4).narrow(3, 0, tokens);
}

// Holds a model's results for all prompts.
struct AllPrompts {
  std::vector<at::Tensor> logits;
  std::vector<at::Tensor> keys_values;

  void Add(const at::Tensor& more_logits, const at::Tensor& more_keys_values) {
    logits.push_back(more_logits.cpu().to(at::kDouble));
    keys_values.push_back(more_keys_values.cpu().to(at::kDouble).flatten());
  }
};

double Error(const std::vector<at::Tensor>& ours,
             const std::vector<at::Tensor>& exact) {
  return ((at::cat(ours) - at::cat(exact)).norm() / at::cat(exact).norm())
      .item<double>();
}

TEST_P(CudaPrefillParityTest, PromptsThatPassTogether) {
  const at::NoGradGuard no_grad;
  // In bfloat16 both round, in different ways.
  constexpr double kRoundings = 2.0;
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto rounded = MakeDecodableModel(family, at::kBFloat16);
    const auto exact = OnDevice(*rounded, at::kCPU, at::kFloat);
    const auto adapter = MakeAdapter(*exact);
    const Adapter there = OnDevice(*adapter, at::kCUDA);
    ModelWeights weights = *OnDevice(*rounded, at::kCUDA, GetParam());
    PackedWeights packed(
        weights, AdapterForm::kColumns, &there.config, nullptr);
    packed.Apply(&there);
    // The prompts have more tokens than a product has rows, one token, a page,
    // and parts of pages.
    std::vector<std::vector<int32_t>> ids;
    for (const int64_t tokens : {9, 130, 128, 1, 300}) {
      ids.push_back(
          MakeRequest(tokens, 1, static_cast<uint32_t>(tokens)).prompt_ids);
    }
    const Prefilled together = Prefill(weights, packed, ids);
    EXPECT_EQ(together.logits.scalar_type(), at::kFloat);
    AllPrompts found;
    AllPrompts expected;
    AllPrompts on_cpu;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto tokens = static_cast<int64_t>(ids[i].size());
      const at::Tensor logits = together.logits[static_cast<int64_t>(i)];
      found.Add(logits, InPages(together.pages[i], tokens));
      const Reference exactly = Expect(*exact, *adapter, ids[i]);
      expected.Add(exactly.logits, exactly.keys_values);
      const Reference roughly = Expect(*rounded, *adapter, ids[i]);
      on_cpu.Add(roughly.logits, roughly.keys_values);
      // A prompt alone gives the same bits.
      const Prefilled alone = Prefill(weights, packed, {ids[i]});
      EXPECT_TRUE(SameBits(logits, alone.logits[0])) << tokens;
      EXPECT_TRUE(SameBits(together.pages[i], alone.pages[0])) << tokens;
    }
    for (const auto& [what, part] :
         {std::pair{"logits", &AllPrompts::logits},
          std::pair{"keys and values", &AllPrompts::keys_values}}) {
      const double error = Error(found.*part, expected.*part);
      const double limit =
          GetParam() == at::kFloat
              ? 1e-4
              : kRoundings * Error(on_cpu.*part, expected.*part);
      std::cout << family << ", " << what << ": error " << error << ", at most "
                << limit << "\n";
      EXPECT_LT(error, limit) << family << ", " << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions,
                         CudaPrefillParityTest,
                         CudaPrecisions(),
                         CudaPrecisionName);

}  // namespace
}  // namespace dapd
