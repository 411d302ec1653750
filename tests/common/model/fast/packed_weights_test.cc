// Multiplies the CUDA decoder's packed weights on the CPU and compares both
// forms of an adapter with LoraLinear.

#include "common/model/fast/packed_weights.h"

#include <iostream>
#include <string>

#include "gtest/gtest.h"

#include "common/model/reference/lora.h"
#include "tests/fakes/random_model.h"

namespace dapd {
namespace {

void MergeOnCpu(const at::Tensor& base,
                const LoraPair& pair,
                double scale,
                const at::Tensor& merged) {
  merged.copy_(base.to(at::kDouble) +
               scale * pair.b.to(at::kDouble).mm(pair.a.to(at::kDouble)));
}

Adapter MakeAdapter(const ModelConfig& config,
                    std::vector<std::string> targets,
                    double size_of_b,
                    int64_t rank = 5) {
  Adapter adapter = MakeFreshAdapter(
      config,
      {.rank = rank, .alpha = 8, .targets = std::move(targets)},
      1,
      at::kCPU);
  at::Generator generator = at::detail::createCPUGenerator(7);
  for (auto& layer : adapter.layers) {
    for (LoraPair& pair : layer) {
      if (pair.b.defined()) pair.b.normal_(0, size_of_b, generator);
    }
  }
  return adapter;
}

// Returns [x, x A^T] W^T in float64; the decoder multiplies like this.
at::Tensor Multiply(const PackedLinear& linear, const at::Tensor& x) {
  at::Tensor wide = x.to(at::kDouble);
  if (linear.lora > 0) {
    wide = at::cat({wide, wide.mm(linear.lora_a.to(at::kDouble).t())}, 1);
  }
  return wide.mm(linear.weight.to(at::kDouble).t());
}

// Returns LoraLinear's result for the stacked projections, in float64.
at::Tensor Expected(const ModelWeights& weights,
                    const Adapter* adapter,
                    size_t layer,
                    const PackedLinear& linear,
                    const at::Tensor& x) {
  std::vector<at::Tensor> parts;
  for (const Projection part : linear.parts) {
    const auto p = static_cast<size_t>(part);
    at::Tensor y = x.to(at::kDouble)
                       .mm(weights.layers[layer].weight[p].to(at::kDouble).t());
    if (adapter != nullptr && adapter->layers[layer][p].a.defined()) {
      const LoraPair& pair = adapter->layers[layer][p];
      y += adapter->config.scale() * x.to(at::kDouble)
                                         .mm(pair.a.to(at::kDouble).t())
                                         .mm(pair.b.to(at::kDouble).t());
    }
    parts.push_back(y);
  }
  return at::cat(parts, 1);
}

double LargestError(const ModelWeights& weights,
                    const PackedWeights& packed,
                    const Adapter* adapter) {
  double largest = 0.0;
  for (size_t layer = 0; layer < packed.layers().size(); ++layer) {
    for (const PackedLinear& linear : packed.layers()[layer]) {
      at::Generator generator = at::detail::createCPUGenerator(3);
      const at::Tensor x = at::randn({4, linear.in}, generator);
      const at::Tensor error =
          Multiply(linear, x) - Expected(weights, adapter, layer, linear, x);
      // A NaN counts as the largest error.
      const double of_this = error.abs().max().item<double>();
      if (!(of_this <= largest)) largest = of_this;
    }
  }
  return largest;
}

TEST(PackedWeightsTest, BothFormsComputeWhatLoraLinearDoes) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeRandomModel(family);
    for (const AdapterForm form :
         {AdapterForm::kMerged, AdapterForm::kColumns}) {
      for (const std::vector<std::string>& targets :
           {std::vector<std::string>{},
            std::vector<std::string>{"q_proj", "v_proj", "up_proj"}}) {
        const Adapter adapter = MakeAdapter(weights->config, targets, 0.1);
        ModelWeights taken = *weights;
        PackedWeights packed(taken, form, &adapter.config, MergeOnCpu);
        EXPECT_EQ(LargestError(*weights, packed, nullptr), 0.0);
        packed.Apply(&adapter);
        const double error = LargestError(*weights, packed, &adapter);
        std::cout << family << (form == AdapterForm::kMerged ? " merged" : "")
                  << ": largest error " << error << "\n";
        EXPECT_LT(error, 2e-5);
        // Nothing of the adapter may stay in the base.
        packed.Apply(nullptr);
        EXPECT_EQ(LargestError(*weights, packed, nullptr), 0.0);
      }
    }
  }
}

// Ranks of 1 to 8 have the same columns.
TEST(PackedWeightsTest, NothingIsLeftOfAnAdapterOfAHigherRank) {
  const auto weights = MakeRandomModel("qwen3");
  const Adapter high = MakeAdapter(weights->config, {}, 0.1, 8);
  const Adapter low = MakeAdapter(weights->config, {}, 0.1, 4);
  ModelWeights taken = *weights;
  PackedWeights packed(taken, AdapterForm::kColumns, &high.config, MergeOnCpu);
  packed.Apply(&high);
  ASSERT_TRUE(packed.Fits(&low));
  packed.Apply(&low);
  EXPECT_LT(LargestError(*weights, packed, &low), 2e-5);
}

// Memory runs out half way, and then the base has to be served again.
TEST(PackedWeightsTest, NothingIsLeftOfAnAdapterThatFoundNoMemory) {
  const auto weights = MakeRandomModel("qwen3");
  const Adapter adapter = MakeAdapter(weights->config, {}, 0.1);
  int64_t merges_left = 3;
  const auto merge = [&](const at::Tensor& base,
                         const LoraPair& pair,
                         double scale,
                         const at::Tensor& merged) {
    TORCH_CHECK_WITH(OutOfMemoryError, merges_left-- > 0, "no memory");
    MergeOnCpu(base, pair, scale, merged);
  };
  ModelWeights taken = *weights;
  PackedWeights packed(taken, AdapterForm::kMerged, &adapter.config, merge);
  EXPECT_THROW(packed.Apply(&adapter), c10::OutOfMemoryError);
  EXPECT_GT(LargestError(*weights, packed, nullptr), 0.0);
  packed.Apply(nullptr);
  EXPECT_EQ(LargestError(*weights, packed, nullptr), 0.0);
}

TEST(PackedWeightsTest, ColumnsFitOneLayoutOfAdapters) {
  const auto weights = MakeRandomModel("qwen3");
  const Adapter all = MakeAdapter(weights->config, {}, 0.1);
  const Adapter some = MakeAdapter(weights->config, {"q_proj"}, 0.1);
  ModelWeights taken = *weights;
  PackedWeights columns(taken, AdapterForm::kColumns, &all.config, MergeOnCpu);
  EXPECT_TRUE(columns.Fits(&all));
  EXPECT_TRUE(columns.Fits(nullptr));
  EXPECT_FALSE(columns.Fits(&some));
  EXPECT_THROW(columns.Apply(&some), c10::Error);
  const PackedWeights merged(taken, AdapterForm::kMerged, nullptr, MergeOnCpu);
  EXPECT_TRUE(merged.Fits(&some));
}

TEST(PackedWeightsTest, WithColumnsTheBaseStandsInMemoryOnce) {
  const auto model = MakeRandomModel("qwen3");
  const Adapter adapter = MakeAdapter(model->config, {}, 0.1);
  ModelWeights weights = *model;
  std::vector<at::Tensor> before;
  for (LayerWeights& layer : weights.layers) {
    for (at::Tensor& weight : layer.weight) {
      weight = weight.clone();  // nobody else holds it
      before.push_back(weight.clone());
    }
  }
  // The weights are packed, and packed again for other adapters.
  for (const LoraConfig* lora :
       {static_cast<const LoraConfig*>(nullptr), &adapter.config}) {
    PackedWeights packed(weights, AdapterForm::kColumns, lora, nullptr);
    for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
      for (const PackedLinear& linear : packed.layers()[layer]) {
        // The packed tensor and its parts share the storage.
        EXPECT_EQ(linear.weight.storage().use_count(), 1 + linear.parts.size());
        for (const Projection part : linear.parts) {
          const auto p = static_cast<size_t>(part);
          const at::Tensor& weight = weights.layers[layer].weight[p];
          EXPECT_TRUE(weight.storage().is_alias_of(linear.weight.storage()));
          EXPECT_TRUE(at::equal(
              weight, before[layer * weights.layers[layer].weight.size() + p]));
        }
      }
    }
  }
}

// The lost share is the reason why a bfloat16 model takes columns.
TEST(PackedWeightsTest, MergingIntoBFloat16LosesSmallUpdates) {
  const auto weights = MakeRandomModel("qwen3", 1, at::kBFloat16);
  const Adapter adapter = MakeAdapter(weights->config, {}, 1e-4);
  const auto lost = [&](AdapterForm form) {
    ModelWeights taken = *weights;
    PackedWeights packed(taken, form, &adapter.config, MergeOnCpu);
    packed.Apply(&adapter);
    const PackedLinear& down = packed.layers()[0][3];
    at::Generator generator = at::detail::createCPUGenerator(3);
    const at::Tensor x = at::randn({16, down.in}, generator);
    const at::Tensor base = Expected(*weights, nullptr, 0, down, x);
    const at::Tensor update = Expected(*weights, &adapter, 0, down, x) - base;
    return ((Multiply(down, x) - base - update).norm() / update.norm())
        .item<double>();
  };
  const double merged = lost(AdapterForm::kMerged);
  const double columns = lost(AdapterForm::kColumns);
  std::cout << "lost of the update: merged " << merged << ", columns "
            << columns << "\n";
  EXPECT_GT(merged, 0.5);
  EXPECT_LT(columns, 0.01);
}

}  // namespace
}  // namespace dapd
