#include "common/training/policy.h"

#include <cmath>
#include <limits>
#include <memory>

#include "gtest/gtest.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/optim/adamw.h"

#include "common/training/policy_state.h"

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
    tensor.mutable_grad() = at::full_like(tensor, value).detach();
  }
}

TEST(PolicyTest, TheRateFallsLinearlyFromTheFirstStep) {
  const OptimizerOptions options{.learning_rate = 1.0, .schedule_steps = 500};
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 1), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 200), 1.0 - 199.0 / 500.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 501), 0.0);
}

TEST(PolicyTest, LayerByLayerItIsOneAdamWOverAllParametersBitForBit) {
  const OptimizerOptions options{.learning_rate = 0.01,
                                 .schedule_steps = 100,
                                 .max_grad_norm = 0.1,
                                 .snapshot_interval = 100};
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

// What a policy holds, as a checkpoint or another rank would get it.
PolicyState StateOf(const Policy& policy) {
  auto bytes = SerializePolicyState(policy);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  auto state = ParsePolicyState(*bytes, TinyModel(), at::kCPU);
  EXPECT_TRUE(state.ok()) << state.status();
  return *std::move(state);
}

void ExpectSame(const Adapter& a, const Adapter& b) {
  for (size_t i = 0; i < a.Tensors().size(); ++i) {
    EXPECT_TRUE(at::equal(a.Tensors()[i], b.Tensors()[i])) << a.Names()[i];
  }
}

TEST(PolicyTest, ARestoredPolicyTakesTheSameSteps) {
  const OptimizerOptions options{.learning_rate = 0.01,
                                 .schedule_steps = 100,
                                 .max_grad_norm = 0.1,
                                 .snapshot_interval = 2};
  Policy policy = MakePolicy(options);
  for (const double value : {0.3, -0.1, 0.02}) {
    FillGradients(policy, value);
    ASSERT_TRUE(policy.Step().ok());
  }
  auto restored = Policy::Restore(StateOf(policy), options);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ((*restored)->version(), 3);
  EXPECT_EQ((*restored)->snapshot_version(), 2);
  ASSERT_NE((*restored)->snapshot(), nullptr);
  for (const double value : {0.7, 0.01}) {
    for (Policy* each : {&policy, restored->get()}) {
      FillGradients(*each, value);
      ASSERT_TRUE(each->Step().ok());
    }
  }
  ExpectSame(policy.live(), (*restored)->live());
  ExpectSame(*policy.snapshot(), *(*restored)->snapshot());
}

// The second of three steps has nothing to learn from: the weights move as if
// there were two, and so does a policy that goes on behind any of them.
TEST(PolicyTest, ARestCountsAsAStepAndMovesNothing) {
  const OptimizerOptions options{.learning_rate = 0.01,
                                 .schedule_steps = 1'000'000'000,
                                 .max_grad_norm = 0.1,
                                 .snapshot_interval = 2,
                                 .ema_rate = 0.5};
  Policy without = MakePolicy(options);
  for (const double value : {0.3, -0.1}) {
    FillGradients(without, value);
    ASSERT_TRUE(without.Step().ok());
  }
  for (const int64_t goes_on_behind : {0, 1, 2}) {
    std::unique_ptr<Policy> policy(new Policy(MakePolicy(options)));
    for (int64_t step = 0; step < 3; ++step) {
      if (step == goes_on_behind && step > 0) {
        auto restored = Policy::Restore(StateOf(*policy), options);
        ASSERT_TRUE(restored.ok()) << restored.status();
        policy = *std::move(restored);
      }
      if (step == 1) {
        const Adapter before = policy->live().Clone();
        size_t told = 0;
        const auto rest = policy->Rest([&](const at::Tensor&) {
          ++told;
          return absl::OkStatus();
        });
        ASSERT_TRUE(rest.ok()) << rest.status();
        EXPECT_TRUE(rest->snapshot_refreshed);
        EXPECT_EQ(told, policy->live().Tensors().size());
        ExpectSame(policy->live(), before);
        continue;
      }
      FillGradients(*policy, step == 0 ? 0.3 : -0.1);
      ASSERT_TRUE(policy->Step().ok());
    }
    EXPECT_EQ(policy->version(), 3);
    EXPECT_EQ(policy->updates(), 2);
    const auto expect_close = [](const Adapter& a, const Adapter& b) {
      for (size_t i = 0; i < a.Tensors().size(); ++i) {
        EXPECT_TRUE(at::allclose(a.Tensors()[i], b.Tensors()[i], 1e-6, 1e-9))
            << a.Names()[i];
      }
    };
    expect_close(without.live(), policy->live());
    expect_close(*without.ema(), *policy->ema());
  }
}

TEST(PolicyTest, APolicyThatOnlyRestedCanBeRestored) {
  Policy policy = MakePolicy({});
  ASSERT_TRUE(policy.Rest().ok());
  const auto restored = Policy::Restore(StateOf(policy), {});
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ((*restored)->version(), 1);
  FillGradients(**restored, 0.5);
  EXPECT_TRUE((*restored)->Step().ok());
}

TEST(PolicyTest, TheAdapterBeforeTheLastStepIsKeptWhereItIsAskedFor) {
  const OptimizerOptions options{.learning_rate = 0.01, .keep_previous = true};
  Policy policy = MakePolicy(options);
  EXPECT_EQ(policy.previous(), nullptr) << "there was no step";
  for (const double value : {0.3, -0.1}) {
    const Adapter before = policy.live().Clone();
    FillGradients(policy, value);
    ASSERT_TRUE(policy.Step().ok());
    ASSERT_NE(policy.previous(), nullptr);
    ExpectSame(*policy.previous(), before);
  }
  const auto restored = Policy::Restore(StateOf(policy), options);
  ASSERT_TRUE(restored.ok()) << restored.status();
  ExpectSame(*(*restored)->previous(), *policy.previous());
  PolicyState missing = StateOf(policy);
  missing.previous.reset();
  EXPECT_FALSE(Policy::Restore(std::move(missing), options).ok());

  Policy other = MakePolicy({});
  FillGradients(other, 0.3);
  ASSERT_TRUE(other.Step().ok());
  EXPECT_EQ(other.previous(), nullptr) << "nobody asked for it";
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

TEST(PolicyTest, AMovingAverageOfRateOneIsTheLiveAdapter) {
  Policy policy = MakePolicy({.learning_rate = 0.01, .ema_rate = 1.0});
  FillGradients(policy, 0.3);
  ASSERT_TRUE(policy.Step().ok());
  ExpectSame(*policy.ema(), policy.live());
}

TEST(PolicyTest, ARestoredMovingAverageGoesOnBitForBit) {
  const OptimizerOptions options{.learning_rate = 0.01, .ema_rate = 0.3};
  Policy policy = MakePolicy(options);
  FillGradients(policy, 0.3);
  ASSERT_TRUE(policy.Step().ok());
  const auto restored = Policy::Restore(StateOf(policy), options);
  ASSERT_TRUE(restored.ok()) << restored.status();
  for (Policy* each : {&policy, restored->get()}) {
    FillGradients(*each, -0.2);
    ASSERT_TRUE(each->Step().ok());
  }
  ExpectSame(*policy.ema(), *(*restored)->ema());

  PolicyState missing = StateOf(policy);
  missing.ema.reset();
  EXPECT_FALSE(Policy::Restore(std::move(missing), options).ok());
  PolicyState unneeded = StateOf(policy);
  EXPECT_EQ((*Policy::Restore(std::move(unneeded), {}))->ema(), nullptr);
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

TEST(PolicyTest, OnlyATermThatReadsTheMovingAverageHasItKept) {
  Config config;
  config.teacher.ema_rate = 0.2;
  EXPECT_FALSE(MakeOptimizerOptions(config).ema_rate.has_value());
  config.objective.terms = {
      {.target = TeacherPass{.weights = WeightSet::kEma}}};
  EXPECT_EQ(MakeOptimizerOptions(config).ema_rate, 0.2);
}

TEST(PolicyTest, MomentsOfAnotherAdapterAreRefused) {
  Policy policy = MakePolicy({});
  FillGradients(policy, 0.1);
  ASSERT_TRUE(policy.Step().ok());
  PolicyState missing = StateOf(policy);
  missing.moments.pop_back();
  EXPECT_FALSE(Policy::Restore(std::move(missing), {}).ok());
  PolicyState extra = StateOf(policy);
  extra.moments.emplace_back("another", extra.moments[0].second);
  EXPECT_FALSE(Policy::Restore(std::move(extra), {}).ok());
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

TEST(PolicyStateTest, BytesThatAreNoStateAreRefused) {
  Policy policy = MakePolicy({});
  FillGradients(policy, 0.1);
  ASSERT_TRUE(policy.Step().ok());
  const std::string bytes = SerializePolicyState(policy).value();
  for (const size_t size : {size_t{0}, size_t{10}, bytes.size() - 1}) {
    EXPECT_FALSE(
        ParsePolicyState(bytes.substr(0, size), TinyModel(), at::kCPU).ok())
        << size;
  }
  EXPECT_FALSE(ParsePolicyState("{}\n", TinyModel(), at::kCPU).ok());
}

}  // namespace
}  // namespace dapd
