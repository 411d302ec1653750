#include "common/model/reference/decoder.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/random_model.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

at::Tensor AllRows(const PackedTokens& tokens) {
  return at::arange(tokens.offsets.back(), at::kLong);
}

TEST(DecoderTest, PackedSequencesDoNotSeeEachOther) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeRandomModel(family);
    const std::vector<int32_t> a = RandomModelIds(9, 1);
    const std::vector<int32_t> b = RandomModelIds(14, 5);
    const PackedTokens both = PackTokens({a, b}, at::kCPU);
    const at::Tensor packed =
        ForwardHidden(*weights, nullptr, both, AllRows(both));
    const PackedTokens alone = PackTokens({b}, at::kCPU);
    const at::Tensor expected =
        ForwardHidden(*weights, nullptr, alone, AllRows(alone));
    EXPECT_LT((packed.narrow(0, 9, 14) - expected).abs().max().item<double>(),
              1e-5)
        << family;
  }
}

TEST(DecoderTest, GradientsAgreeWithCentralDifferences) {
  const auto weights = MakeRandomModel("llama");
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const PackedTokens tokens = PackTokens({RandomModelIds(6, 2)}, at::kCPU);
  const auto loss = [&] {
    return ForwardHidden(*weights, &adapter, tokens, AllRows(tokens))
        .square()
        .mean();
  };
  loss().backward();
  at::NoGradGuard no_grad;
  constexpr double kStep = 1e-2;
  for (const size_t index : {size_t{0}, size_t{1}, size_t{13}}) {
    at::Tensor tensor = adapter.Tensors()[index];
    at::Tensor entry = tensor.view({-1})[3];
    const double start = entry.item<double>();
    entry.fill_(start + kStep);
    const double up = loss().item<double>();
    entry.fill_(start - kStep);
    const double down = loss().item<double>();
    entry.fill_(start);
    const double analytic = tensor.grad().view({-1})[3].item<double>();
    EXPECT_NEAR((up - down) / (2 * kStep),
                analytic,
                2e-3 * std::max(1e-2, std::abs(analytic)))
        << adapter.Names()[index];
  }
}

TEST(DecoderTest, TheBaseStaysUntouched) {
  const auto weights = MakeRandomModel("qwen2");
  const at::Tensor before = weights->layers[0].weight[0].clone();
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const PackedTokens tokens = PackTokens({RandomModelIds(6, 2)}, at::kCPU);
  ForwardHidden(*weights, &adapter, tokens, AllRows(tokens)).sum().backward();
  EXPECT_TRUE(at::equal(weights->layers[0].weight[0], before));
  EXPECT_FALSE(weights->layers[0].weight[0].grad().defined());
}

}  // namespace
}  // namespace dapd
