#include "common/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/random_model.h"

namespace dapd {
namespace {

Adapter MakeTrainedAdapter(const ModelConfig& model) {
  Adapter adapter =
      MakeFreshAdapter(model, {.rank = 4, .alpha = 8}, 3, at::kCPU);
  torch::manual_seed(4);
  for (auto& layer : adapter.layers) {
    for (LoraPair& pair : layer) pair.b = torch::randn_like(pair.b) * 0.05;
  }
  for (at::Tensor tensor : adapter.Tensors()) tensor.requires_grad_(true);
  return adapter;
}

std::vector<int32_t> MakeIds(int64_t count, int32_t start) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>((start + 13 * i) % 97));
  }
  return ids;
}

at::Tensor AllRows(const PackedTokens& tokens) {
  return at::arange(tokens.offsets.back(), at::kLong);
}

TEST(DecoderTest, PackedSequencesDoNotSeeEachOther) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeRandomModel(family);
    const std::vector<int32_t> a = MakeIds(9, 1);
    const std::vector<int32_t> b = MakeIds(14, 5);
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

TEST(DecoderTest, RecomputedLayersGiveTheSameValuesAndGradients) {
  const auto weights = MakeRandomModel("qwen3");
  const PackedTokens tokens =
      PackTokens({MakeIds(12, 1), MakeIds(7, 3)}, at::kCPU);
  std::vector<std::vector<at::Tensor>> gradients;
  std::vector<at::Tensor> values;
  for (const bool recompute : {false, true}) {
    const Adapter adapter = MakeTrainedAdapter(weights->config);
    const at::Tensor hidden =
        ForwardHidden(*weights, &adapter, tokens, AllRows(tokens), recompute);
    hidden.square().sum().backward();
    values.push_back(hidden.detach());
    gradients.emplace_back();
    for (const at::Tensor& tensor : adapter.Tensors()) {
      gradients.back().push_back(tensor.grad());
    }
  }
  EXPECT_TRUE(at::equal(values[0], values[1]));
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
    EXPECT_GT(gradients[0][i].abs().max().item<double>(), 0.0) << i;
  }
}

TEST(DecoderTest, GradientsAgreeWithCentralDifferences) {
  const auto weights = MakeRandomModel("llama");
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const PackedTokens tokens = PackTokens({MakeIds(6, 2)}, at::kCPU);
  const auto loss = [&] {
    return ForwardHidden(*weights, &adapter, tokens, AllRows(tokens), true)
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
  const PackedTokens tokens = PackTokens({MakeIds(6, 2)}, at::kCPU);
  ForwardHidden(*weights, &adapter, tokens, AllRows(tokens), true)
      .sum()
      .backward();
  EXPECT_TRUE(at::equal(weights->layers[0].weight[0], before));
  EXPECT_FALSE(weights->layers[0].weight[0].grad().defined());
}

}  // namespace
}  // namespace dapd
