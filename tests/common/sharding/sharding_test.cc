#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/sharding/layer_gather.h"
#include "common/sharding/tensor_parallel.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/thread_ranks.h"

namespace dapd {
namespace {

// What LoadShardedWeights would have read of `whole`.
ShardedWeights Shard(const ModelWeights& whole, const ShardLayout& layout) {
  ShardedWeights sharded{layout, whole};
  for (LayerWeights& layer : sharded.shard.layers) {
    for (const Projection projection : AllProjections()) {
      at::Tensor& weight = layer.weight[static_cast<size_t>(projection)];
      weight = ShardOf(weight, SplitDimension(projection), layout).contiguous();
    }
  }
  return sharded;
}

Adapter TrainedAdapter(const ModelConfig& model) {
  Adapter adapter =
      MakeFreshAdapter(model, {.rank = 4, .alpha = 8}, 3, at::kCPU);
  at::Generator generator = at::detail::createCPUGenerator(4);
  for (auto& layer : adapter.layers) {
    for (LoraPair& pair : layer) {
      pair.b = at::randn(pair.b.sizes(), generator) * 0.05;
    }
  }
  return adapter;
}

class ShardingTest : public testing::TestWithParam<std::string> {
 protected:
  const std::shared_ptr<const ModelWeights> whole_ =
      MakeRandomModel(GetParam());
  const Adapter adapter_ = TrainedAdapter(whole_->config);
  const PackedTokens tokens_ =
      PackTokens({RandomModelIds(9, 3), RandomModelIds(14, 3)}, at::kCPU);
  const at::Tensor rows_ = at::arange(23, at::kLong);
};

TEST_P(ShardingTest, RanksTogetherComputeWhatOneProcessDoes) {
  at::NoGradGuard no_grad;
  const at::Tensor expected = ForwardHidden(*whole_, &adapter_, tokens_, rows_);
  double worst = 0.0;
  RunThreadRanks(2, [&](Collective& collective) {
    const ShardLayout layout{collective.rank(), collective.size()};
    const ShardedWeights weights = Shard(*whole_, layout);
    const Adapter adapter = ShardAdapter(adapter_, layout);
    const auto hidden = ForwardHiddenSharded(
        weights, &adapter, tokens_, rows_, HostSum(collective));
    ASSERT_TRUE(hidden.ok()) << hidden.status();
    const double error = (*hidden - expected).abs().max().item<double>();
    EXPECT_LT(error, 2e-5);
    if (layout.rank == 0) worst = error;
  });
  std::printf(
      "%s over 2 ranks: largest difference %.2g\n", GetParam().c_str(), worst);
}

TEST_P(ShardingTest, DecodingWithShardedCachesAgreesWithTheWholeSequence) {
  at::NoGradGuard no_grad;
  const std::vector<int32_t> ids = RandomModelIds(12, 3);
  const PackedTokens tokens = PackTokens({ids}, at::kCPU);
  const at::Tensor expected =
      ForwardHidden(*whole_, &adapter_, tokens, at::arange(12, at::kLong));
  RunThreadRanks(2, [&](Collective& collective) {
    const ShardLayout layout{collective.rank(), collective.size()};
    const ShardedWeights weights = Shard(*whole_, layout);
    const Adapter adapter = ShardAdapter(adapter_, layout);
    KvCache cache(
        ShardConfig(whole_->config, layout), 16, at::kFloat, at::kCPU);
    for (int64_t next = 0; next < 12;) {
      const int64_t count = next == 0 ? 5 : 1;
      const auto hidden =
          ForwardCachedSharded(weights,
                               &adapter,
                               tokens.ids.narrow(0, next, count),
                               &cache,
                               HostSum(collective));
      ASSERT_TRUE(hidden.ok()) << hidden.status();
      next += count;
      EXPECT_LT((*hidden - expected.narrow(0, next - 1, 1))
                    .abs()
                    .max()
                    .item<double>(),
                2e-5)
          << "token " << next;
    }
  });
}

TEST_P(ShardingTest, AGatheredLayerIsTheWholeOneBitForBit) {
  RunThreadRanks(2, [&](Collective& collective) {
    const ShardLayout layout{collective.rank(), collective.size()};
    const ShardedWeights weights = Shard(*whole_, layout);
    for (int64_t index = 0; index < whole_->config.num_layers; ++index) {
      const auto layer = GatherLayer(weights, index, HostAllGather(collective));
      ASSERT_TRUE(layer.ok()) << layer.status();
      const LayerWeights& expected = whole_->layers[static_cast<size_t>(index)];
      for (int p = 0; p < kNumProjections; ++p) {
        const auto i = static_cast<size_t>(p);
        EXPECT_TRUE(at::equal(layer->weight[i], expected.weight[i]))
            << ProjectionName(static_cast<Projection>(p));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families,
                         ShardingTest,
                         testing::Values("qwen3", "qwen2", "llama"),
                         [](const auto& info) { return info.param; });

TEST(ShardLayoutTest, WhatCannotBeDividedIsNamed) {
  const auto weights = MakeRandomModel("qwen3");
  EXPECT_TRUE(CheckShardLayout(weights->config, {0, 2}).ok());
  const absl::Status status = CheckShardLayout(weights->config, {0, 4});
  EXPECT_NE(status.message().find("2 key-value heads"), absl::string_view::npos)
      << status;
  EXPECT_FALSE(CheckShardLayout(weights->config, {2, 2}).ok());
}

}  // namespace
}  // namespace dapd
