#include "common/generation/cuda/cuda_prefill.h"

#include <iostream>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/reference/decoder.h"
#include "common/tensor/float8_tensor.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/prefill_pages.h"

namespace dapd {
namespace {

TEST(CudaPrefillTest, PromptsThatPassTogetherAreThoseThatPassAlone) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto decodable = MakeDecodableModel("qwen3", dtype);
    ModelWeights weights = *decodable;
    const auto adapter = MakeAdapter(*decodable);
    PackedWeights packed(
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
        prompts.push_back({ids[i], EmptyPages(weights, 3)});
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
      // The slow reference rounds its hidden state in the same way, but not its
      // logits.
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

TEST(CudaPrefillTest, PagesOfFloat8HaveTheSameNumbersRounded) {
  const auto decodable = MakeDecodableModel("qwen3", at::kBFloat16);
  ModelWeights weights = *decodable;
  PackedWeights packed(weights, AdapterForm::kColumns, nullptr, nullptr);
  const std::vector<std::vector<int32_t>> ids = {
      MakeRequest(9, 1, 1).prompt_ids,
      MakeRequest(300, 1, 2).prompt_ids,
      MakeRequest(128, 1, 3).prompt_ids};
  std::vector<PrefillPrompt> prompts;
  std::vector<PrefillPrompt> in_float8;
  for (const std::vector<int32_t>& each : ids) {
    prompts.push_back({each, EmptyPages(weights, 3)});
    in_float8.push_back({each, EmptyFloat8Pages(weights, 3)});
  }
  const at::Tensor logits = PrefillPrompts(weights, packed, prompts);
  EXPECT_TRUE(at::equal(PrefillPrompts(weights, packed, in_float8), logits));
  const int64_t dim = weights.config.head_dim;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Float8Tensor expected = RoundToFloat8(prompts[i].pages);
    const at::Tensor& bytes = in_float8[i].pages;
    const int64_t size = kPageTokens * dim;
    for (size_t token = 0; token < ids[i].size(); ++token) {
      const auto page = static_cast<int64_t>(token) / kPageTokens;
      const auto place = static_cast<int64_t>(token) % kPageTokens;
      ASSERT_TRUE(
          at::equal(bytes[page].narrow(3, place * dim, dim),
                    expected.numbers[page].select(3, place).view(at::kByte)))
          << "prompt " << i << ", token " << token;
      ASSERT_TRUE(at::equal(
          bytes[page].narrow(3, size + 2 * place, 2),
          expected.scales[page].select(3, place).contiguous().view(at::kByte)))
          << "prompt " << i << ", token " << token;
    }
  }
}

}  // namespace
}  // namespace dapd
