#include "common/generation/cuda/cuda_prefill.h"

#include <iostream>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/reference/decoder.h"
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

}  // namespace
}  // namespace dapd
