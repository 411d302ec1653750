#include "common/training/policy_state.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "tests/fakes/small_policy.h"

namespace dapd {
namespace {

// Returns the state that a checkpoint or another rank gets.
PolicyState StateOf(const Policy& policy) {
  auto bytes = SerializePolicyState(policy);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  auto state = ParsePolicyState(*bytes, TinyModel(), at::kCPU);
  EXPECT_TRUE(state.ok()) << state.status();
  return *std::move(state);
}

TEST(PolicyTest, ARestoredPolicyTakesTheSameSteps) {
  const OptimizerOptions options = ClippingOptions(2);
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

// The second of three steps has nothing to learn. The weights move as in two
// steps, even if the policy is restored after any of the three.
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
  // The moments of an A stand in the place of a B's moments.
  PolicyState misplaced = StateOf(policy);
  misplaced.moments[2].second = misplaced.moments[0].second;
  EXPECT_FALSE(Policy::Restore(std::move(misplaced), {}).ok());
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
