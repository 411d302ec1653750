#include "common/model/spec/executor_support.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/model_shapes.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ExecutorSupportTest, EveryExecutorComputesAPlainModel) {
  for (const bool on_gpu : {false, true}) {
    EXPECT_THAT(SlowWorkOf(FourBillion(), on_gpu), IsEmpty());
  }
}

TEST(ExecutorSupportTest, CappedScoresAreComputedByLibTorchExceptInTheLoss) {
  ModelConfig model = FourBillion();
  model.score_softcap = 50;
  std::vector<std::string> works;
  for (const SlowWork& slow : SlowWorkOf(model, /*on_gpu=*/true)) {
    works.push_back(slow.work);
    EXPECT_EQ(ByLibTorch(slow.misfit),
              "by LibTorch, since attention scores are capped (softcap 50)");
  }
  EXPECT_THAT(works, testing::ElementsAre("decoding", "training", "scoring"));
}

TEST(ExecutorSupportTest, CappedLogitsAreComputedByLibTorchWhereTheHeadIs) {
  ModelConfig model = FourBillion();
  model.logit_softcap = 30;
  std::vector<std::string> works;
  for (const SlowWork& slow : SlowWorkOf(model, /*on_gpu=*/false)) {
    works.push_back(slow.work);
    EXPECT_THAT(slow.misfit, HasSubstr("final logits are capped (softcap 30)"));
  }
  EXPECT_THAT(works, testing::ElementsAre("decoding", "loss"));
}

TEST(ExecutorSupportTest, AReasonOfManyLayersIsSaidOnce) {
  ModelConfig model = FourBillion();
  model.windows.assign(static_cast<size_t>(model.num_layers), 512);
  model.activation = Activation::kGeluTanh;
  EXPECT_EQ(Misfit(Executor::kLayerPass, model),
            "layers attend to a window of 512 tokens, the activation is GELU");
}

}  // namespace
}  // namespace dapd
