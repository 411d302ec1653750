// Tests a trainer's step on a GPU that the host simulates: its numbers against
// the CPU, and the work that it causes on the device.

#include <iostream>
#include <numeric>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

#include "common/objective/head_workspace.h"
#include "common/objective/micro_batch.h"
#include "common/objective/score_locally.h"
#include "common/training/policy.h"
#include "tests/fakes/torch_device/device_model.h"
#include "tests/fakes/torch_device/torch_device.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

// Returns terms that need everything: ids of the sampler's tokens and of a
// one-hot target, and weights by the sampler's probabilities.
std::vector<Term> TermsOfAllParts() {
  return {{.name = "inference",
           .student = ViewName::kSelfRollout,
           .target = TeacherPass{WeightSet::kBase, ViewName::kNoneRollout},
           .importance = Importance::kToken,
           .weight = 0.5},
          {.name = "privileged",
           .student = ViewName::kNoneReference,
           .target = TeacherPass{WeightSet::kBase, ViewName::kCrossReference},
           .weight = 2.0},
          {.name = "tuned",
           .student = ViewName::kNoneRollout,
           .target = OneHot{},
           .weight = 1.0}};
}

// Returns terms between which each token is routed.
std::vector<Term> MakeRoutedTerms() {
  Routed routed = {.first = {WeightSet::kBase, ViewName::kCrossRollout},
                   .second = {WeightSet::kBase, ViewName::kSelfRollout}};
  routed.choices = {{{false, 0.6}, {true, 0.3}, {false, 1.0}, {true, 0.5}}};
  std::vector<Term> terms(2);
  for (Term& term : terms) {
    term = {.name = "routed",
            .student = ViewName::kNoneRollout,
            .target = routed,
            .weight = 0.5};
    routed.trim = 0.2;  // of the second term
  }
  return terms;
}

std::vector<ScoredSample> MakeSamples(const ModelWeights& weights,
                                      size_t count,
                                      const std::vector<Term>& terms) {
  std::vector<ScoredSample> samples(count);
  for (size_t i = 0; i < count; ++i) {
    const auto length = static_cast<int64_t>(20 + 7 * i);
    for (size_t v = 0; v < samples[i].views.size(); ++v) {
      View& view = samples[i].views[v];
      view.input_ids =
          RandomModelIds(5 + length, static_cast<int32_t>(v + 3 * i));
      view.scored_from = 5;
      view.scored_count = length;
    }
    samples[i].sampler_logprobs.assign(static_cast<size_t>(length), -3.0F);
    samples[i].scores = ScoreLocally(weights,
                                     {{WeightSet::kSnapshot, nullptr}},
                                     TeacherPasses(terms),
                                     samples[i].views);
  }
  return samples;
}

struct Outcome {
  std::vector<DivergenceSums> sums;
  at::Tensor gradient;
  DeviceWork accumulated;
  DeviceWork stepped;
};

Outcome RunStep(const ModelWeights& weights,
                Adapter adapter,
                size_t num_samples,
                const std::vector<Term>& terms = TermsOfAllParts()) {
  const std::vector<ScoredSample> samples =
      MakeSamples(weights, num_samples, terms);
  Policy policy(std::move(adapter), /*snapshot=*/std::nullopt, {});
  Outcome outcome;
  ResetWorkOfDevice();
  outcome.sums =
      AccumulateMicroBatch(weights, policy.live(), terms, samples, {}).sums;
  outcome.accumulated = WorkOfDevice();
  outcome.gradient = policy.FlatGradient().cpu();
  ResetWorkOfDevice();
  EXPECT_TRUE(policy.Step().ok());
  outcome.stepped = WorkOfDevice();
  return outcome;
}

TEST(DeviceStepTest, APartIsOneWaitAndAnOptimizerStepAnother) {
  const auto weights = MakeSmallModel(at::kFloat);
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const Outcome expected = RunStep(*weights, adapter.Clone(), 3);
  const auto on_device = OnSimulatedDevice(*weights);
  const Outcome got = RunStep(*on_device, OnSimulatedDevice(adapter), 3);

  for (size_t k = 0; k < expected.sums.size(); ++k) {
    EXPECT_EQ(got.sums[k].tokens, expected.sums[k].tokens) << k;
    EXPECT_NEAR(got.sums[k].clipped / expected.sums[k].clipped, 1.0, 1e-4) << k;
  }
  const double error =
      ((got.gradient - expected.gradient).norm() / expected.gradient.norm())
          .item<double>();
  // There are two packs, references and answers, with three parts each.
  const DeviceWork& work = got.accumulated;
  std::cout << "gradient " << error << ", " << work.num_launches()
            << " launches, " << work.to_device << " copies to the device, "
            << work.to_host << " to the host, " << work.waits << " waits; "
            << got.stepped.num_launches() << " launches of the optimizer\n";
  EXPECT_LT(error, 1e-4);
  EXPECT_EQ(work.waits, 6);
  EXPECT_EQ(work.pageable_copies, 0);
  EXPECT_EQ(work.Launches("aten::_efficient_attention_forward"), 2 * 2);
  EXPECT_EQ(work.Launches("aten::_efficient_attention_backward"), 2 * 2);
  // A pack sends ids, positions, offsets and rows; a part sends the tokens of
  // the student, of the target and of the ratios, and the sampler's numbers.
  EXPECT_LE(work.to_device, 2 * 6 + 6 * 4);
  // The only copy is the gradient's norm.
  EXPECT_LE(got.stepped.waits, 1);
  EXPECT_LE(got.stepped.to_host, 1);
  EXPECT_EQ(got.stepped.to_device, 0);
}

TEST(DeviceStepTest, MoreSamplesOfAPackAreNoMoreAttention) {
  const auto weights = OnSimulatedDevice(*MakeSmallModel(at::kFloat));
  const Adapter adapter =
      OnSimulatedDevice(MakeTrainedAdapter(weights->config));
  const Outcome one = RunStep(*weights, adapter.Clone(), 1);
  const Outcome five = RunStep(*weights, adapter.Clone(), 5);
  EXPECT_EQ(one.accumulated.waits, 2);
  EXPECT_EQ(five.accumulated.waits, 10);
  for (const char* name : {"aten::_efficient_attention_forward",
                           "aten::_efficient_attention_backward"}) {
    EXPECT_EQ(five.accumulated.Launches(name), one.accumulated.Launches(name))
        << name;
  }
}

TEST(DeviceStepTest, RoutesAreNotWaitedForAndTheirCountsOnce) {
  const auto weights = MakeSmallModel(at::kFloat);
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const Outcome expected =
      RunStep(*weights, adapter.Clone(), 3, MakeRoutedTerms());
  const auto on_device = OnSimulatedDevice(*weights);
  const Outcome got =
      RunStep(*on_device, OnSimulatedDevice(adapter), 3, MakeRoutedTerms());
  for (size_t k = 0; k < expected.sums.size(); ++k) {
    EXPECT_EQ(got.sums[k].regimes, expected.sums[k].regimes) << k;
    EXPECT_EQ(
        std::accumulate(
            got.sums[k].regimes.begin(), got.sums[k].regimes.end(), int64_t{0}),
        got.sums[k].tokens)
        << k;
    EXPECT_NEAR(got.sums[k].clipped / expected.sums[k].clipped, 1.0, 1e-4) << k;
  }
  // Each of three parts waits once, and both terms' counts share a wait that
  // has ended by then.
  EXPECT_EQ(got.accumulated.waits, 3 + 1);
  EXPECT_EQ(got.accumulated.pageable_copies, 0);
  EXPECT_EQ(got.accumulated.Launches("aten::masked_select"), 0);
}

// Without kernels, as here, tensor operations compute the loss.
TEST(DeviceStepTest, TensorOperationsStandBesideNoMemoryOfTheKernels) {
  constexpr int64_t kRows = 1'000'000;
  const auto weights = OnSimulatedDevice(*MakeSmallModel(at::kFloat));
  const Adapter adapter =
      OnSimulatedDevice(MakeTrainedAdapter(weights->config));
  const std::vector<ScoredSample> samples =
      MakeSamples(*weights, 2, TermsOfAllParts());
  Policy policy(adapter.Clone(), /*snapshot=*/std::nullopt, {});
  HeadWorkspace workspace;
  workspace.Take(kRows, 1, SimulatedDevice());
  MicroBatchOptions options;
  options.head.workspace = &workspace;
  AccumulateMicroBatch(
      *weights, policy.live(), TermsOfAllParts(), samples, options);
  EXPECT_LT(workspace.Take(1, 1, SimulatedDevice()).storage().nbytes(),
            static_cast<size_t>(kRows));
}

}  // namespace
}  // namespace dapd
