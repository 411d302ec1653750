#include "common/objective/position_gradient.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/objective/score_locally.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

constexpr int64_t kTokens = 7;

const TeacherPass kNone{WeightSet::kBase, ViewName::kNoneRollout};
const TeacherPass kCross{WeightSet::kBase, ViewName::kCrossRollout};

std::vector<Term> MakeTermsOfAllKinds() {
  return {{.name = "inference",
           .student = ViewName::kSelfRollout,
           .target = kNone,
           .weight = 0.4},
          {.name = "on_none",
           .student = ViewName::kNoneRollout,
           .target = kCross,
           .divergence = {DivergenceKind::kReverseKl, 0.5, kNoClip},
           .support = {SupportKind::kStudentTopK, 10, true},
           .weight = 3.0},
          {.name = "moved",
           .student = ViewName::kSelfRollout,
           .target = Mixture{kNone, {{kCross, 1.0}}},
           .weight = 1.0},
          {.name = "tokens",
           .student = ViewName::kSelfRollout,
           .target = OneHot{},
           .divergence = {DivergenceKind::kForwardKl, 0.5, kNoClip},
           .weight = 1.0}};
}

class PositionGradientTest : public testing::Test {
 protected:
  PositionGradientTest() {
    for (const ViewName name : {ViewName::kNoneRollout,
                                ViewName::kSelfRollout,
                                ViewName::kCrossRollout}) {
      const auto index = static_cast<size_t>(name);
      View& view = sample_.views[index];
      // Prompts of different lengths come before the same answer.
      view.scored_from = 5 + 3 * static_cast<int64_t>(index);
      view.scored_count = kTokens;
      view.input_ids =
          RandomModelIds(view.scored_from, static_cast<int32_t>(index));
      for (const int32_t id : RandomModelIds(kTokens, 40)) {
        view.input_ids.push_back(id);
      }
    }
    sample_.scores = ScoreLocally(
        *weights_, {}, TeacherPasses(MakeTermsOfAllKinds()), sample_.views);
  }

  // Returns the gradient of the term over all of its tokens, with weight 1.
  std::vector<at::Tensor> Whole(Term term, double* loss) const {
    term.weight = 1.0;
    const MicroBatchResult result =
        ComputeMicroBatch(*weights_, live_, {term}, {&sample_, 1}, options_);
    *loss = result.sums[0].value();
    std::vector<at::Tensor> tensors;
    for (const auto& layer : result.gradients) {
      for (const LoraPair& pair : layer) {
        tensors.push_back(pair.a);
        tensors.push_back(pair.b);
      }
    }
    return tensors;
  }

  std::shared_ptr<const ModelWeights> weights_ = MakeRandomModel("qwen3");
  Adapter live_ = MakeTrainedAdapter(weights_->config);
  MicroBatchOptions options_;
  ScoredSample sample_;
};

// The gradient of a token mean is the mean of the tokens' gradients.
TEST_F(PositionGradientTest, ItsMeanOverAllPositionsIsTheTermsGradient) {
  // One teacher is a model of another width and with fewer tokens, which are
  // those of all terms.
  options_.head.vocabulary = 93;
  const LmHead other(at::randn({93, 20}, at::detail::createCPUGenerator(2)));
  sample_.scores.at(kCross) = {
      .hidden = at::randn({kTokens, 20}, at::detail::createCPUGenerator(3)),
      .head = &other};
  for (const Term& term : MakeTermsOfAllKinds()) {
    double expected_loss = 0.0;
    const std::vector<at::Tensor> expected = Whole(term, &expected_loss);
    std::vector<at::Tensor> mean;
    double loss = 0.0;
    for (int64_t position = 0; position < kTokens; ++position) {
      const PositionGradient one = GradientAtPosition(
          *weights_, live_, term, sample_, position, options_);
      loss += one.loss / kTokens;
      ASSERT_EQ(one.tensors.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        if (position == 0) mean.push_back(at::zeros_like(expected[i]));
        mean[i].add_(one.tensors[i], 1.0 / kTokens);
      }
    }
    EXPECT_NEAR(loss, expected_loss, 1e-5) << term.name;
    double difference = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
      difference += (mean[i] - expected[i]).square().sum().item<double>();
    }
    const double error = std::sqrt(difference / DotProduct(expected, expected));
    std::printf("%s: relative error %.1e\n", term.name.c_str(), error);
    EXPECT_LE(error, 1e-5) << term.name;
  }
}

// Weight, reduction, importance and skipped tokens apply only in a micro-batch.
TEST_F(PositionGradientTest, OnlyTheLossOfThePositionCounts) {
  const Term term = MakeTermsOfAllKinds()[1];
  Term other = term;
  other.weight = 100.0;
  other.reduction = Reduction::kSeqMeanKeepMasked;
  other.skip_tokens = 5;
  other.importance = Importance::kToken;
  sample_.sampler_logprobs.assign(kTokens, -3.0F);
  const PositionGradient a =
      GradientAtPosition(*weights_, live_, term, sample_, 2, {});
  const PositionGradient b =
      GradientAtPosition(*weights_, live_, other, sample_, 2, {});
  EXPECT_EQ(a.loss, b.loss);
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(a.tensors[i], b.tensors[i]));
  }
}

TEST_F(PositionGradientTest, WhatIsNotScoredOrHasNoSinglePositionIsRefused) {
  const Term term = MakeTermsOfAllKinds()[0];
  for (const int64_t position : {int64_t{-1}, kTokens}) {
    EXPECT_THROW(
        GradientAtPosition(*weights_, live_, term, sample_, position, {}),
        c10::Error);
  }
  Term routed = term;
  routed.target = Routed{kNone, kCross};
  EXPECT_NE(ProblemWithPositions(routed).find("'inference'"),
            std::string::npos);
  EXPECT_THROW(GradientAtPosition(*weights_, live_, routed, sample_, 1, {}),
               c10::Error);
  EXPECT_EQ(ProblemWithPositions(term), "");
}

TEST(DotProductTest, IsThatOfAllTensorsTogether) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  std::vector<at::Tensor> a;
  std::vector<at::Tensor> b;
  for (const int64_t size : {3, 50, 7}) {
    a.push_back(at::randn({size, 4}, generator));
    b.push_back(at::randn({size, 4}, generator));
  }
  const double expected =
      ((a[0] * b[0]).sum() + (a[1] * b[1]).sum() + (a[2] * b[2]).sum())
          .item<double>();
  EXPECT_NEAR(DotProduct(a, b), expected, 1e-4);
  EXPECT_GT(DotProduct(a, a), 0.0);
}

}  // namespace
}  // namespace dapd
