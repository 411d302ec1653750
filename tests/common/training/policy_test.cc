#include "common/training/policy.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace dapd {
namespace {

ModelConfig TinyModel() {
  ModelConfig config;
  config.model_type = "qwen3";
  config.vocab_size = 16;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_layers = 2;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  return config;
}

Policy MakePolicy(OptimizerOptions options) {
  return Policy(
      MakeFreshAdapter(TinyModel(), {.rank = 2, .alpha = 4}, 7, at::kCPU),
      std::nullopt,
      options);
}

void FillGradients(const Policy& policy, double value) {
  for (at::Tensor tensor : policy.live().Tensors()) {
    tensor.mutable_grad() = torch::full_like(tensor, value).detach();
  }
}

TEST(PolicyTest, TheRateFallsLinearlyFromTheFirstStep) {
  const OptimizerOptions options{.learning_rate = 1.0, .schedule_steps = 500};
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 1), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 200), 1.0 - 199.0 / 500.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 501), 0.0);
}

TEST(PolicyTest, AStepIsAdamWOnTheClippedGradient) {
  const OptimizerOptions options{.learning_rate = 0.01,
                                 .schedule_steps = 100,
                                 .max_grad_norm = 0.1,
                                 .snapshot_interval = 100};
  Policy policy = MakePolicy(options);
  // By hand: m and v from zero, bias correction, eps outside the root.
  std::vector<at::Tensor> expected;
  std::vector<at::Tensor> m;
  std::vector<at::Tensor> v;
  int64_t count = 0;
  for (const at::Tensor& tensor : policy.live().Tensors()) {
    expected.push_back(tensor.detach().clone());
    m.push_back(torch::zeros_like(expected.back()));
    v.push_back(torch::zeros_like(expected.back()));
    count += tensor.numel();
  }
  for (int step = 1; step <= 3; ++step) {
    const double value = 0.5 * step;
    FillGradients(policy, value);
    const auto outcome = policy.Step();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const double norm = value * std::sqrt(static_cast<double>(count));
    EXPECT_NEAR(outcome->gradient_norm, norm, 1e-4 * norm);
    const double clipped = value * 0.1 / (norm + 1e-6);
    const double rate = 0.01 * (1.0 - (step - 1) / 100.0);
    EXPECT_DOUBLE_EQ(outcome->learning_rate, rate);
    for (size_t i = 0; i < expected.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * clipped;
      v[i] = 0.999 * v[i] + 0.001 * clipped * clipped;
      const at::Tensor m_hat = m[i] / (1 - std::pow(0.9, step));
      const at::Tensor v_hat = v[i] / (1 - std::pow(0.999, step));
      expected[i] = expected[i] - rate * m_hat / (v_hat.sqrt() + 1e-8);
      EXPECT_TRUE(at::allclose(
          policy.live().Tensors()[i].detach(), expected[i], 1e-5, 1e-7));
    }
  }
  EXPECT_EQ(policy.version(), 3);
}

TEST(PolicyTest, TheSnapshotIsTheBaseThenACopyFromTheLastRefresh) {
  Policy policy = MakePolicy({.learning_rate = 0.01, .snapshot_interval = 2});
  FillGradients(policy, 1.0);
  ASSERT_FALSE(policy.Step()->snapshot_refreshed);
  EXPECT_EQ(policy.snapshot(), nullptr);
  FillGradients(policy, 1.0);
  ASSERT_TRUE(policy.Step()->snapshot_refreshed);
  const Adapter copy = policy.live().Clone();
  FillGradients(policy, 1.0);
  ASSERT_TRUE(policy.Step().ok());
  ASSERT_NE(policy.snapshot(), nullptr);
  EXPECT_EQ(policy.snapshot_version(), 2);
  for (size_t i = 0; i < copy.Tensors().size(); ++i) {
    const at::Tensor snapshot = policy.snapshot()->Tensors()[i];
    EXPECT_TRUE(at::equal(snapshot, copy.Tensors()[i]));
    EXPECT_FALSE(snapshot.requires_grad());
    EXPECT_FALSE(at::equal(snapshot, policy.live().Tensors()[i].detach()));
  }
}

TEST(PolicyTest, AGradientThatIsNotFiniteChangesNothing) {
  Policy policy = MakePolicy({});
  const Adapter before = policy.live().Clone();
  FillGradients(policy, std::numeric_limits<double>::quiet_NaN());
  const absl::Status status = policy.Step().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(policy.version(), 0);
  for (size_t i = 0; i < before.Tensors().size(); ++i) {
    EXPECT_TRUE(
        at::equal(before.Tensors()[i], policy.live().Tensors()[i].detach()));
  }
}

TEST(PolicyTest, MomentsAndGradientsCarryPeftNames) {
  Policy policy = MakePolicy({});
  EXPECT_TRUE(policy.Moments().empty());
  FillGradients(policy, 1.0);
  EXPECT_EQ(policy.Gradients().size(), policy.live().Names().size());
  EXPECT_EQ(policy.Gradients()[0].first, policy.live().Names()[0]);
  ASSERT_TRUE(policy.Step().ok());
  EXPECT_EQ(policy.Moments().size(), 2 * policy.live().Names().size());
}

}  // namespace
}  // namespace dapd
