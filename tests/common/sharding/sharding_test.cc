#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/status_error.h"
#include "common/collective/collective.h"
#include "common/model/continuations.h"
#include "common/model/training_pass.h"
#include "common/sharding/sharded_layers.h"
#include "common/sharding/sharded_weights.h"
#include "common/sharding/tensor_parallel.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/random_shards.h"
#include "tests/fakes/thread_ranks.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

class ShardingTest : public testing::TestWithParam<std::string> {
 protected:
  // Holds one rank's part of the model; there are two ranks.
  struct Part {
    int rank;
    ModelWeights weights;
    Adapter adapter;
    SumOverRanks sum;
  };

  void OnBothRanks(const std::function<void(const Part& part)>& body) const {
    RunThreadRanks(2, [&](Collective& collective) {
      const ShardLayout layout{collective.rank(), collective.size()};
      const auto shard = ShardModel(*whole_, layout);
      const auto devices = DeviceGroup::Join(collective, at::kCPU, 1).value();
      body({.rank = layout.rank,
            .weights = WeightsOfRank(*shard),
            .adapter = ShardAdapter(adapter_, whole_->config, layout),
            .sum = SumOver(*devices)});
    });
  }

  const std::shared_ptr<const ModelWeights> whole_ =
      MakeRandomModel(GetParam());
  const Adapter adapter_ = MakeFrozenAdapter(whole_->config);
  const PackedTokens tokens_ =
      PackTokens({RandomModelIds(9, 3), RandomModelIds(14, 3)}, at::kCPU);
  const at::Tensor rows_ = at::arange(23, at::kLong);
};

TEST_P(ShardingTest, RanksTogetherComputeWhatOneProcessDoes) {
  at::NoGradGuard no_grad;
  const at::Tensor expected = ForwardHidden(*whole_, &adapter_, tokens_, rows_);
  double worst = 0.0;
  OnBothRanks([&](const Part& part) {
    const at::Tensor hidden =
        ForwardHidden(part.weights, &part.adapter, tokens_, rows_, part.sum);
    const double error = (hidden - expected).abs().max().item<double>();
    EXPECT_LT(error, 2e-5);
    if (part.rank == 0) worst = error;
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
  OnBothRanks([&](const Part& part) {
    const auto& [rank, weights, adapter, sum] = part;
    KvCache cache(weights.config, 16, at::kFloat, at::kCPU);
    for (int64_t next = 0; next < 12;) {
      const int64_t count = next == 0 ? 5 : 1;
      const at::Tensor ids_now = tokens.ids.narrow(0, next, count);
      KvCache* const caches[] = {&cache};
      const at::Tensor hidden =
          next == 0 ? ForwardPrompt(weights, &adapter, ids_now, &cache, sum)
                    : ForwardTokens(weights, &adapter, ids_now, caches, sum);
      next += count;
      EXPECT_LT(
          (hidden - expected.narrow(0, next - 1, 1)).abs().max().item<double>(),
          2e-5)
          << "token " << next;
    }
  });
}

TEST_P(ShardingTest, AGatheredLayerIsTheWholeOneBitForBit) {
  RunThreadRanks(2, [&](Collective& collective) {
    const ShardLayout layout{collective.rank(), collective.size()};
    const auto shard = ShardModel(*whole_, layout);
    const ShardedWeights& weights = *shard;
    const auto devices = DeviceGroup::Join(collective, at::kCPU, 1).value();
    for (int64_t index = 0; index < whole_->config.num_layers; ++index) {
      const auto layer = GatherLayer(weights, index, *devices);
      ASSERT_TRUE(layer.ok()) << layer.status();
      const LayerWeights& expected = whole_->layers[static_cast<size_t>(index)];
      const LayerRecipe recipe = LayerRecipeOf(whole_->config, index);
      ASSERT_EQ(layer->weight.size(), recipe.projections.size());
      for (const Projection projection : recipe.All()) {
        const size_t i = IndexOf(projection);
        EXPECT_TRUE(at::equal(layer->weight[i], expected.weight[i]))
            << recipe[projection].name;
      }
    }
  });
}

TEST_P(ShardingTest, ATrainingPassOverGatheredLayersIsTheOneOverWholeOnes) {
  at::NoGradGuard no_grad;
  const auto expected = MakeTrainingPass(*whole_, adapter_, tokens_, rows_, 0);
  const at::Tensor grad = at::ones_like(expected->hidden());
  const std::vector<LoraLayer> gradients = expected->Backward(grad);
  RunThreadRanks(2, [&](Collective& collective) {
    at::NoGradGuard no_grad_here;
    const auto sharded =
        ShardModel(*whole_, {collective.rank(), collective.size()});
    const auto devices = DeviceGroup::Join(collective, at::kCPU, 1).value();
    const auto layers = std::make_shared<ShardedLayers>(
        sharded, collective, *devices, /*side=*/nullptr);
    const auto weights = WithLayersFrom(*sharded, layers);
    ASSERT_TRUE(weights->layers.empty());
    // The ranks have different numbers of passes, and some passes end early.
    for (int i = 0; i < 2 + collective.rank(); ++i) {
      const auto pass = MakeTrainingPass(*weights, adapter_, tokens_, rows_, 0);
      EXPECT_TRUE(at::equal(pass->hidden(), expected->hidden()));
      if (i == 0 && collective.rank() == 1) continue;
      const std::vector<LoraLayer> found = pass->Backward(grad);
      for (size_t layer = 0; layer < gradients.size(); ++layer) {
        for (size_t p = 0; p < gradients[layer].size(); ++p) {
          EXPECT_TRUE(at::equal(found[layer][p].a, gradients[layer][p].a));
          EXPECT_TRUE(at::equal(found[layer][p].b, gradients[layer][p].b));
        }
      }
    }
    ASSERT_TRUE(layers->ServeOthers().ok());
    EXPECT_GT(layers->wait_seconds(), 0.0);
    // Only rank 0 runs a forward pass.
    if (collective.rank() == 0) {
      EXPECT_TRUE(at::equal(ForwardHidden(*weights, &adapter_, tokens_, rows_),
                            ForwardHidden(*whole_, &adapter_, tokens_, rows_)));
    }
    ASSERT_TRUE(layers->ServeOthers().ok());
  });
}

TEST_P(ShardingTest, ContinuationsOverGatheredLayersAreThoseOverWholeOnes) {
  const ContinuationTree tree =
      ContinuationTree::Make({{5, 6, 9}, {5, 7}, {8}}).value();
  const std::vector<int32_t> ids = RandomModelIds(20, 3);
  const std::vector<ContinuationPlace> places = {{7, &tree}, {20, &tree}};
  const std::vector<double> expected =
      ContinuationProbabilities(*whole_, &adapter_, ids, places);
  RunThreadRanks(2, [&](Collective& collective) {
    const auto sharded =
        ShardModel(*whole_, {collective.rank(), collective.size()});
    const auto devices = DeviceGroup::Join(collective, at::kCPU, 1).value();
    const auto layers = std::make_shared<ShardedLayers>(
        sharded, collective, *devices, /*side=*/nullptr);
    const auto weights = WithLayersFrom(*sharded, layers);
    if (collective.rank() == 0) {
      EXPECT_EQ(ContinuationProbabilities(*weights, &adapter_, ids, places),
                expected);
    }
    ASSERT_TRUE(layers->ServeOthers().ok());
  });
}

// Loses its peers at its operation number `last`.
class LosingRank final : public SingleRank {
 public:
  explicit LosingRank(int last) : left_(last) {}
  absl::Status Sum(absl::Span<float>) override { return Use(); }
  absl::Status Broadcast(std::string*) override { return Use(); }
  absl::StatusOr<std::vector<std::string>> Gather(std::string part) override {
    const absl::Status status = Use();
    if (!status.ok()) return status;
    return SingleRank::Gather(std::move(part));
  }

 private:
  absl::Status Use() {
    return left_-- > 0 ? absl::OkStatus()
                       : absl::AbortedError("rank 1 is lost");
  }
  int left_;
};

TEST_P(ShardingTest, ALostRankEndsThePassWithItsError) {
  at::NoGradGuard no_grad;
  const auto sharded = ShardModel(*whole_, {0, 1});
  // The ranks lose the agreement, an operation in the first layer, or a later
  // operation.
  for (const int last : {0, 3, 17, 40}) {
    LosingRank collective(last);
    const auto devices = DeviceGroup::Join(collective, at::kCPU, 1).value();
    const auto layers = std::make_shared<ShardedLayers>(
        sharded, collective, *devices, /*side=*/nullptr);
    const auto weights = WithLayersFrom(*sharded, layers);
    absl::Status status;
    try {
      const auto pass = MakeTrainingPass(*weights, adapter_, tokens_, rows_, 0);
      pass->Backward(at::ones_like(pass->hidden()));
    } catch (const StatusError& error) {
      status = error.status();
    }
    EXPECT_EQ(status, absl::AbortedError("rank 1 is lost")) << last;
    EXPECT_EQ(layers->ServeOthers(), absl::AbortedError("rank 1 is lost"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families,
    ShardingTest,
    testing::Values("qwen3", "qwen2", "llama", kUnusualFamily),
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
