#include "common/training/policy.h"

#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/optim/adamw.h"

#include "tests/fakes/small_policy.h"

namespace dapd {
namespace {

TEST(PolicyTest, LayerByLayerItIsOneAdamWOverAllParametersBitForBit) {
  const OptimizerOptions options = ClippingOptions(100);
  Policy policy = MakePolicy(options);
  std::vector<at::Tensor> twins;
  for (const at::Tensor& tensor : policy.live().Tensors()) {
    twins.push_back(tensor.detach().clone().requires_grad_(true));
  }
  torch::optim::AdamW twin(twins,
                           torch::optim::AdamWOptions(options.learning_rate)
                               .betas({0.9, 0.999})
                               .eps(1e-8)
                               .weight_decay(0.0));
  at::Generator generator = at::detail::createCPUGenerator(3);
  for (int64_t step = 1; step <= 4; ++step) {
    at::Tensor gradient = policy.FlatGradient();
    gradient.normal_(0.0, 1.0, generator);
    policy.SetFlatGradient(gradient);
    int64_t next = 0;
    for (at::Tensor& tensor : twins) {
      tensor.mutable_grad() =
          gradient.narrow(0, next, tensor.numel()).view(tensor.sizes()).clone();
      next += tensor.numel();
    }
    torch::nn::utils::clip_grad_norm_(twins, options.max_grad_norm);
    twin.param_groups()[0].options().set_lr(LearningRateAt(options, step));
    twin.step();
    size_t updated = 0;
    const auto result = policy.Step([&](const at::Tensor& tensor) {
      EXPECT_TRUE(at::equal(tensor, twins[updated])) << "tensor " << updated;
      ++updated;
      return absl::OkStatus();
    });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(updated, twins.size());
  }
}

TEST(PolicyTest, AStepIsAdamWOnTheClippedGradient) {
  const OptimizerOptions options = ClippingOptions(100);
  Policy policy = MakePolicy(options);
  // The expected weights use m and v from zero, bias correction, and eps
  // outside the root.
  std::vector<at::Tensor> expected;
  std::vector<at::Tensor> m;
  std::vector<at::Tensor> v;
  int64_t count = 0;
  for (const at::Tensor& tensor : policy.live().Tensors()) {
    expected.push_back(tensor.detach().clone());
    m.push_back(at::zeros_like(expected.back()));
    v.push_back(at::zeros_like(expected.back()));
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
  EXPECT_EQ(policy.FlatGradient().abs().sum().item<float>(), 0.0F);
}

TEST(PolicyTest, ARestHasItsStepsRateAndDropsWhatWasAccumulated) {
  Policy policy = MakePolicy(
      {.learning_rate = 0.01, .schedule_steps = 4, .keep_previous = true});
  FillGradients(policy, 1.0);
  ASSERT_TRUE(policy.Step().ok());
  FillGradients(policy, 1.0);
  const auto rest = policy.Rest();
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_DOUBLE_EQ(rest->learning_rate, 0.0075);
  EXPECT_EQ(policy.FlatGradient().abs().sum().item<float>(), 0.0F);
  ExpectSame(*policy.previous(), policy.live());
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

TEST(PolicyTest, TheMovingAverageFollowsByItsRate) {
  const OptimizerOptions options{
      .learning_rate = 0.01, .snapshot_interval = 2, .ema_rate = 0.25};
  Policy policy = MakePolicy(options);
  ASSERT_NE(policy.ema(), nullptr);
  ExpectSame(*policy.ema(), policy.live());
  std::vector<at::Tensor> expected = policy.live().Clone().Tensors();
  for (const double value : {0.3, -0.1, 0.02}) {
    FillGradients(policy, value);
    ASSERT_TRUE(policy.Step().ok());
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor live = policy.live().Tensors()[i].detach();
      expected[i] = 0.75 * expected[i] + 0.25 * live;
      const at::Tensor ema = policy.ema()->Tensors()[i];
      EXPECT_TRUE(at::allclose(ema, expected[i], 1e-6, 1e-9));
      EXPECT_FALSE(ema.requires_grad());
      EXPECT_FALSE(at::equal(ema, live));
    }
  }
  EXPECT_EQ(MakePolicy({}).ema(), nullptr) << "nobody asked for it";
}

TEST(PolicyTest, AMovingAverageCanBeginAtTheFirstUpdate) {
  OptimizerOptions options{
      .learning_rate = 0.01, .ema_rate = 0.25, .ema_from_first_update = true};
  Policy policy = MakePolicy(options);
  ExpectSame(*policy.ema(), policy.live());
  ASSERT_TRUE(policy.Rest().ok());
  FillGradients(policy, 0.3);
  ASSERT_TRUE(policy.Step().ok());
  ExpectSame(*policy.ema(), policy.live());
  const std::vector<at::Tensor> first = policy.live().Clone().Tensors();
  FillGradients(policy, -0.1);
  ASSERT_TRUE(policy.Step().ok());
  for (size_t i = 0; i < first.size(); ++i) {
    const at::Tensor live = policy.live().Tensors()[i].detach();
    EXPECT_TRUE(at::allclose(
        policy.ema()->Tensors()[i], 0.75 * first[i] + 0.25 * live, 1e-6, 1e-9));
  }
}

TEST(PolicyTest, AMovingAverageOfRateOneIsTheLiveAdapter) {
  Policy policy = MakePolicy({.learning_rate = 0.01, .ema_rate = 1.0});
  FillGradients(policy, 0.3);
  ASSERT_TRUE(policy.Step().ok());
  ExpectSame(*policy.ema(), policy.live());
}

TEST(PolicyTest, AGivenMovingAverageIsReadAtOnceAndMovesOn) {
  const OptimizerOptions options{.learning_rate = 0.01, .ema_rate = 0.25};
  Policy earlier = MakePolicy(options);
  FillGradients(earlier, 0.3);
  ASSERT_TRUE(earlier.Step().ok());
  const auto fresh = [] { return MakePolicy({}).live().Clone(); };
  Policy policy(fresh(), std::nullopt, options, earlier.ema()->Clone());
  ASSERT_NE(policy.WeightSets().at(WeightSet::kEma), nullptr);
  ExpectSame(*policy.WeightSets().at(WeightSet::kEma), *earlier.ema());
  ASSERT_TRUE(policy.Rest().ok());
  ExpectSame(*policy.ema(), *earlier.ema());
  const Policy without(fresh(), std::nullopt, {}, earlier.ema()->Clone());
  EXPECT_EQ(without.ema(), nullptr) << "nobody asked for it";
}

TEST(PolicyTest, EverySetHasItsAdapterAndItsVersion) {
  Policy policy = MakePolicy(
      {.learning_rate = 0.01, .snapshot_interval = 2, .ema_rate = 0.3});
  // A fresh adapter changes nothing yet.
  EXPECT_EQ(policy.SetsAtBase(),
            (std::set{WeightSet::kBase,
                      WeightSet::kSnapshot,
                      WeightSet::kEma,
                      WeightSet::kLive}));
  for (int step = 1; step <= 3; ++step) {
    FillGradients(policy, 0.3);
    ASSERT_TRUE(policy.Step().ok());
  }
  EXPECT_EQ(policy.SetsAtBase(), std::set{WeightSet::kBase});
  const auto sets = policy.WeightSets();
  EXPECT_EQ(sets.at(WeightSet::kSnapshot), policy.snapshot());
  EXPECT_EQ(sets.at(WeightSet::kEma), policy.ema());
  EXPECT_EQ(sets.at(WeightSet::kLive), &policy.live());
  EXPECT_EQ(policy.VersionOf(WeightSet::kBase), 0);
  EXPECT_EQ(policy.VersionOf(WeightSet::kSnapshot), 2);
  EXPECT_EQ(policy.VersionOf(WeightSet::kEma), 3);
  EXPECT_EQ(policy.VersionOf(WeightSet::kLive), 3);
}

TEST(PolicyTest, AFlatGradientGoesBackWhereItCameFrom) {
  const Policy policy = MakePolicy({});
  double value = 0.0;
  for (at::Tensor tensor : policy.live().Tensors()) {
    tensor.mutable_grad() = at::full_like(tensor, ++value).detach();
  }
  Policy other = MakePolicy({});
  other.SetFlatGradient(policy.FlatGradient());
  value = 0.0;
  for (const at::Tensor& tensor : other.live().Tensors()) {
    EXPECT_TRUE(at::equal(tensor.grad(), at::full_like(tensor, ++value)));
  }
}

TEST(PolicyTest, WithoutAGradientTheFlatOneIsZero) {
  const Policy policy = MakePolicy({});
  EXPECT_EQ(policy.FlatGradient().abs().sum().item<float>(), 0.0F);
}

}  // namespace
}  // namespace dapd
