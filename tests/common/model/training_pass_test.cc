#include "common/model/training_pass.h"

#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/fast/fast_training_pass.h"
#include "common/model/spec/executor_support.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/relative_error.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

struct Case {
  explicit Case(const std::string& family, at::ScalarType dtype = at::kFloat)
      : weights(MakeRandomModel(family, 1, dtype)),
        adapter(MakeTrainedAdapter(weights->config)) {}

  std::shared_ptr<const ModelWeights> weights;
  Adapter adapter;
  PackedTokens tokens = PackTokens(
      {RandomModelIds(23, 1), RandomModelIds(1, 7), RandomModelIds(40, 3)},
      at::kCPU);
  at::Tensor rows = at::tensor(std::vector<int64_t>{5, 22, 23, 63, 30});
  at::Tensor grad_hidden =
      at::randn({5, 32}, at::detail::createCPUGenerator(9));
};

TEST(TrainingPassTest, AModelThatLayerPassDoesNotComputeIsTrainedByLibTorch) {
  const Case c(kUnusualFamily);
  ASSERT_FALSE(Supports(Executor::kLayerPass, c.weights->config));
  const at::Tensor expected =
      ForwardHidden(*c.weights, &c.adapter, c.tokens, c.rows);
  expected.backward(c.grad_hidden);
  const auto pass = MakeTrainingPass(
      *c.weights, c.adapter, c.tokens, c.rows, kUnlimitedActivations);
  EXPECT_EQ(pass->num_kept_layers(), 0);
  EXPECT_TRUE(at::equal(pass->hidden(), expected.detach()));
  EXPECT_TRUE(
      at::equal(ForwardWithoutGradient(*c.weights, c.adapter, c.tokens, c.rows),
                pass->hidden()));
  const std::vector<LoraLayer> gradients = pass->Backward(c.grad_hidden);
  double worst = 0.0;
  for (size_t layer = 0; layer < gradients.size(); ++layer) {
    for (size_t p = 0; p < gradients[layer].size(); ++p) {
      const LoraPair& live = c.adapter.layers[layer][p];
      worst = std::max({worst,
                        RelativeError(gradients[layer][p].a, live.a.grad()),
                        RelativeError(gradients[layer][p].b, live.b.grad())});
    }
  }
  std::printf("by LibTorch: worst gradient %.1e\n", worst);
  EXPECT_LE(worst, 1e-5);
}

// LayerPass does not know the traits: that it is not asked is what counts.
TEST(TrainingPassTest, EveryTraitMovesWhatLayerPassWouldGive) {
  const Case c(kUnusualFamily);
  const at::NoGradGuard no_grad;
  const at::Tensor whole =
      ForwardHidden(*c.weights, &c.adapter, c.tokens, c.rows);
  for (const auto& [name, change] :
       std::vector<std::pair<std::string, void (*)(ModelConfig*)>>{
           {"activation",
            [](ModelConfig* config) {
              config->activation = Activation::kSilu;
            }},
           {"scale", [](ModelConfig* config) { config->score_divisor = 0; }},
           {"softcap", [](ModelConfig* config) { config->score_softcap = 0; }},
           {"embedding",
            [](ModelConfig* config) { config->scales_embedding = false; }},
           {"norms",
            [](ModelConfig* config) {
              config->norm_scale = NormScale::kWeight;
            }},
           {"rotation", [](ModelConfig* config) { config->rotated_dim = 0; }},
           {"windows", [](ModelConfig* config) { config->windows.clear(); }}}) {
    ModelWeights other = *c.weights;
    change(&other.config);
    EXPECT_GT(RelativeError(ForwardHidden(other, &c.adapter, c.tokens, c.rows),
                            whole),
              1e-3)
        << name;
  }
}

TEST(TrainingPassTest, APlainModelIsTrainedByHand) {
  const Case c("qwen3");
  const auto pass = MakeTrainingPass(
      *c.weights, c.adapter, c.tokens, c.rows, kUnlimitedActivations);
  EXPECT_NE(dynamic_cast<FastTrainingPass*>(pass.get()), nullptr);
}

}  // namespace
}  // namespace dapd
