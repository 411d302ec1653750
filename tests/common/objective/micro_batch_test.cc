#include "common/objective/micro_batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/reference/token_logprobs.h"
#include "common/objective/score_locally.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/small_memory.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

std::vector<Term> MakeTerms() {
  return {{.name = "inference",
           .student = ViewName::kSelfRollout,
           .target = TeacherPass{WeightSet::kBase, ViewName::kNoneRollout},
           .weight = 0.5},
          {.name = "privileged",
           .student = ViewName::kNoneReference,
           .target = TeacherPass{WeightSet::kBase, ViewName::kCrossReference},
           .weight = 2.0}};
}

ScoredSample MakeSample(const ModelWeights& weights, int64_t length) {
  ScoredSample sample;
  for (size_t i = 0; i < sample.views.size(); ++i) {
    View& view = sample.views[i];
    for (int64_t t = 0; t < 5 + length; ++t) {
      view.input_ids.push_back(
          static_cast<int32_t>((7 * t + 11 * static_cast<int64_t>(i)) % 97));
    }
    view.scored_from = 5;
    view.scored_count = length;
  }
  sample.scores = ScoreLocally(weights,
                               {{WeightSet::kSnapshot, nullptr}},
                               TeacherPasses(MakeTerms()),
                               sample.views);
  return sample;
}

struct Outcome {
  std::vector<DivergenceSums> sums;
  at::Tensor gradient;  // of all tensors, flat
};

class MicroBatchTest : public testing::Test {
 protected:
  Outcome Run(int64_t pack_tokens) {
    const Adapter adapter = MakeTrainedAdapter(weights_->config);
    limits_.pack_tokens = pack_tokens;
    Outcome outcome;
    outcome.sums =
        AccumulateMicroBatch(*weights_,
                             adapter,
                             MakeTerms(),
                             samples_,
                             {.head = {.chunk_bytes = 8192}, .limits = limits_})
            .sums;
    std::vector<at::Tensor> parts;
    for (const at::Tensor& tensor : adapter.Tensors()) {
      parts.push_back(tensor.grad().flatten());
    }
    outcome.gradient = at::cat(parts);
    return outcome;
  }

  // Returns the sums of one term with new scores.
  DivergenceSums Evaluate(const Term& term) {
    for (ScoredSample& sample : samples_) {
      sample.scores =
          ScoreLocally(*weights_, {}, TeacherPasses({term}), sample.views);
    }
    return EvaluateMicroBatch(*weights_,
                              MakeTrainedAdapter(weights_->config),
                              {term},
                              samples_,
                              {.chunk_bytes = 8192})[0];
  }

  static void ExpectEqual(const Outcome& a, const Outcome& b) {
    for (size_t k = 0; k < a.sums.size(); ++k) {
      EXPECT_NEAR(a.sums[k].clipped, b.sums[k].clipped, 1e-5);
      EXPECT_EQ(a.sums[k].tokens, b.sums[k].tokens);
    }
    const double error =
        ((a.gradient - b.gradient).norm() / b.gradient.norm()).item<double>();
    std::printf("relative error of the gradient %.1e\n", error);
    EXPECT_LE(error, 1e-6);
  }

  std::shared_ptr<const ModelWeights> weights_ = MakeRandomModel("qwen3");
  std::vector<ScoredSample> samples_ = {MakeSample(*weights_, 60),
                                        MakeSample(*weights_, 3),
                                        MakeSample(*weights_, 45)};
  PassLimits limits_;
};

TEST_F(MicroBatchTest, PacksOfAnySizeAddUpToTheSame) {
  const Outcome together = Run(100000);
  ExpectEqual(Run(60), together);
  ExpectEqual(Run(1), together);
}

// Two of the three rows name a teacher. Each teacher's sums are what its rows
// give by themselves, in packs of any size.
TEST_F(MicroBatchTest, TheRowsTeachersAreMeasuredApart) {
  const TeacherPass by_row = PassWith(kRowTeacher, ViewName::kNoneRollout);
  const std::vector<Term> terms = {
      {.name = "routed",
       .student = ViewName::kSelfRollout,
       .target = by_row,
       .weight = 1.0},
      {.name = "own",
       .student = ViewName::kSelfRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kNoneRollout},
       .weight = 1.0}};
  samples_[0].teacher = "math";
  samples_[2].teacher = "math";
  for (ScoredSample& sample : samples_) {
    sample.scores =
        ScoreLocally(*weights_, {}, TeacherPasses({terms[1]}), sample.views);
    sample.scores[by_row] = sample.scores.begin()->second;
  }
  const Adapter adapter = MakeTrainedAdapter(weights_->config);
  const auto compute = [&](const std::vector<ScoredSample>& samples) {
    return ComputeMicroBatch(
        *weights_,
        adapter,
        terms,
        samples,
        {.head = {.chunk_bytes = 8192}, .limits = limits_});
  };
  const MicroBatchResult math = compute({samples_[0], samples_[2]});
  const MicroBatchResult base = compute({samples_[1]});
  for (const int64_t pack_tokens : {100000, 1}) {
    limits_.pack_tokens = pack_tokens;
    const MicroBatchResult all = compute(samples_);
    ASSERT_EQ(all.by_teacher.size(), 2u);
    EXPECT_TRUE(all.by_teacher[1].empty());
    const SumsByTeacher& found = all.by_teacher[0];
    ASSERT_EQ(found.size(), 2u);
    for (const auto& [name, alone] :
         {std::pair{"math", math.sums[0]}, {"base", base.sums[0]}}) {
      const DivergenceSums& sums = found.at(name);
      std::printf("%s: %.9g, alone %.9g\n",
                  name,
                  sums.true_value(),
                  alone.true_value());
      EXPECT_GT(sums.unclipped, 0.0);
      EXPECT_NEAR(sums.true_value(), alone.true_value(), 1e-6);
      EXPECT_EQ(sums.tokens, alone.tokens);
      EXPECT_EQ(sums.denominator, alone.denominator);
    }
  }
}

// The sampler's log-probabilities come from passes over whole sequences. One
// answer's value is wrong by 0.25 at one token, and another answer's values are
// unknown.
TEST_F(MicroBatchTest, TheSamplersLogProbabilitiesAreComparedTokenByToken) {
  const std::vector<Term> terms = {
      {.name = "on_policy",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kNoneRollout},
       .weight = 1.0}};
  const Adapter adapter = MakeTrainedAdapter(weights_->config);
  for (ScoredSample& sample : samples_) {
    const View& view =
        sample.views[static_cast<size_t>(ViewName::kNoneRollout)];
    const at::Tensor logprobs =
        TokenLogprobs(*weights_, &adapter, view.input_ids)
            .slice(0, view.scored_from - 1);
    sample.sampler_logprobs.assign(
        logprobs.data_ptr<float>(),
        logprobs.data_ptr<float>() + logprobs.numel());
  }
  samples_[0].sampler_logprobs[7] += 0.25F;
  samples_[1].sampler_logprobs.clear();
  for (const int64_t pack_tokens : {100000, 1}) {
    const SamplerMismatch mismatch =
        ComputeMicroBatch(*weights_,
                          adapter,
                          terms,
                          samples_,
                          {.limits = {.pack_tokens = pack_tokens}})
            .sampler_mismatch;
    EXPECT_EQ(mismatch.tokens, 60 + 45);
    EXPECT_NEAR(mismatch.largest, 0.25, 1e-5);
    // Float32 rounds each of the 105 log-probabilities by about 1e-6.
    EXPECT_NEAR(mismatch.sum, 0.25, 105 * 5e-6);
    std::printf("sum of the rest %.1e\n", mismatch.sum - mismatch.largest);
  }
}

// For an answer of padding alone, the terms over its tokens count nothing of
// it, and the terms over its reference count everything.
TEST_F(MicroBatchTest, AnAnswerWithoutATokenLeavesItsReferencesTerms) {
  const Outcome before = Run(100000);
  const auto empty = [&](ScoredSample& sample) {
    for (const ViewName name : {ViewName::kNoneRollout,
                                ViewName::kSelfRollout,
                                ViewName::kCrossRollout}) {
      View& view = sample.views[static_cast<size_t>(name)];
      view.input_ids.resize(static_cast<size_t>(view.scored_from));
      view.scored_count = 0;
    }
    sample.scores =
        ScoreLocally(*weights_, {}, TeacherPasses(MakeTerms()), sample.views);
    EXPECT_EQ(sample.scores.size(), 1u) << "of its reference";
  };
  empty(samples_[1]);
  const Outcome outcome = Run(100000);
  EXPECT_EQ(outcome.sums[0].tokens, 60 + 45);
  EXPECT_EQ(outcome.sums[1].tokens, 60 + 3 + 45);
  EXPECT_NEAR(outcome.sums[1].clipped, before.sums[1].clipped, 1e-4);

  empty(samples_[0]);
  empty(samples_[2]);
  const Outcome references = Run(100000);
  EXPECT_EQ(references.sums[0].tokens, 0);
  EXPECT_EQ(references.sums[0].clipped, 0.0);
  EXPECT_NEAR(references.sums[1].clipped, before.sums[1].clipped, 1e-4);
  EXPECT_TRUE(at::isfinite(references.gradient).all().item<bool>());
  EXPECT_GT(references.gradient.norm().item<double>(), 0.0);
}

TEST_F(MicroBatchTest, AnAnswerWithoutATokenIsNotRouted) {
  const Term term{.name = "routed",
                  .student = ViewName::kSelfRollout,
                  .target = Routed{{WeightSet::kBase, ViewName::kNoneRollout},
                                   {WeightSet::kBase, ViewName::kCrossRollout}},
                  .weight = 1.0};
  EXPECT_EQ(Evaluate(term).tokens, 60 + 3 + 45);
  for (const auto& [sample, expected] :
       {std::pair{1, 60 + 45}, {0, 45}, {2, 0}}) {
    for (const ViewName name : {ViewName::kNoneRollout,
                                ViewName::kSelfRollout,
                                ViewName::kCrossRollout}) {
      samples_[static_cast<size_t>(sample)]
          .views[static_cast<size_t>(name)]
          .scored_count = 0;
    }
    EXPECT_EQ(Evaluate(term).tokens, expected);
  }
}

// Tokens that are left out act as a longer prompt: neither averages nor the
// regimes' shares include them. The second answer has no other tokens.
TEST_F(MicroBatchTest, TokensThatAreLeftOutAreNotRouted) {
  Routed routed{{WeightSet::kBase, ViewName::kNoneRollout},
                {WeightSet::kBase, ViewName::kCrossRollout}};
  routed.choices = {{{false, 0.6}, {true, 0.3}, {false, 1.0}, {true, 0.5}}};
  Term term{.name = "routed",
            .student = ViewName::kSelfRollout,
            .target = routed,
            .skip_tokens = 3,
            .weight = 1.0};
  const DivergenceSums left_out = Evaluate(term);
  term.skip_tokens = 0;
  for (ScoredSample& sample : samples_) {
    for (View& view : sample.views) {
      view.scored_from += 3;
      view.scored_count -= 3;
    }
  }
  const DivergenceSums never_scored = Evaluate(term);
  EXPECT_EQ(left_out.tokens, 57 + 42);
  EXPECT_EQ(left_out.tokens, never_scored.tokens);
  EXPECT_EQ(left_out.regimes, never_scored.regimes);
  EXPECT_EQ(std::reduce(left_out.regimes.begin(), left_out.regimes.end()),
            left_out.tokens);
  EXPECT_NEAR(left_out.clipped, never_scored.clipped, 1e-5);
}

// All tokens of the second answer are left out.
TEST_F(MicroBatchTest, AMaskedAnswerCountsOnlyWhereTheReductionKeepsIt) {
  Term term{.name = "on_policy",
            .student = ViewName::kSelfRollout,
            .target = TeacherPass{WeightSet::kBase, ViewName::kNoneRollout},
            .divergence = {.clip = kNoClip},
            .reduction = Reduction::kSeqMean,
            .skip_tokens = 3,
            .weight = 1.0};
  const DivergenceSums mean = Evaluate(term);
  term.reduction = Reduction::kSeqMeanKeepMasked;
  const DivergenceSums with_masked = Evaluate(term);
  EXPECT_GT(mean.value(), 0.0);
  EXPECT_NEAR(2 * mean.value(), 3 * with_masked.value(), 1e-6);
  for (const DivergenceSums& sums : {mean, with_masked}) {
    EXPECT_NEAR(sums.true_value(), sums.value(), 1e-6) << "nothing is clipped";
  }
}

// Without a cap the ratio is as large as the difference allows.
TEST_F(MicroBatchTest, TokensThatTheSamplerTookForImpossibleCountFinitely) {
  for (ScoredSample& sample : samples_) {
    sample.sampler_logprobs.assign(
        static_cast<size_t>(sample.views[0].scored_count), -1e4F);
  }
  const DivergenceSums sums = Evaluate(
      {.name = "uncapped",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kCrossRollout},
       .importance = Importance::kToken,
       .importance_cap = std::numeric_limits<double>::infinity(),
       .weight = 1.0});
  EXPECT_TRUE(std::isfinite(sums.value())) << sums.value();
  EXPECT_GT(sums.value(), 1e6);
}

// A teacher's head begins with the base's rows. Cut to these, it is the base's.
TEST_F(MicroBatchTest, ALargerHeadOfATeacherIsCutToTheStudentsTokens) {
  const Outcome expected = Run(100000);
  const LmHead larger(
      at::cat({weights_->head, at::ones({40, weights_->head.size(1)})}));
  for (ScoredSample& sample : samples_) {
    for (auto& [pass, scores] : sample.scores) scores.head = &larger;
  }
  const Outcome outcome = Run(100000);
  EXPECT_TRUE(at::equal(outcome.gradient, expected.gradient));
  EXPECT_EQ(outcome.sums[1].clipped, expected.sums[1].clipped);
}

// One answer's teacher has fewer tokens. Its vocabulary is that of all answers
// of the micro-batch, and of all parts of a term's loss.
TEST_F(MicroBatchTest, AllLossesAreOverTheTokensOfTheSmallestHead) {
  Routed routed{{WeightSet::kBase, ViewName::kNoneRollout},
                {WeightSet::kBase, ViewName::kCrossRollout}};
  routed.choices = {{{false, 0.6}, {true, 0.3}, {false, 1.0}, {true, 0.5}}};
  const Term term{.name = "routed",
                  .student = ViewName::kNoneRollout,
                  .target = routed,
                  .importance = Importance::kToken,
                  .weight = 1.0};
  const LmHead smaller(weights_->head.narrow(0, 0, 97 - 4));
  for (ScoredSample& sample : samples_) {
    for (View& view : sample.views) {
      for (int32_t& id : view.input_ids) id = std::min(id, 92);
    }
    sample.sampler_logprobs.assign(
        static_cast<size_t>(sample.views[0].scored_count), -4.0F);
    sample.scores =
        ScoreLocally(*weights_, {}, TeacherPasses({term}), sample.views);
  }
  const Adapter adapter = MakeTrainedAdapter(weights_->config);
  const auto evaluate = [&](int64_t vocabulary) {
    return EvaluateMicroBatch(*weights_,
                              adapter,
                              {term},
                              samples_,
                              {.chunk_bytes = 8192, .vocabulary = vocabulary});
  };
  const double whole = evaluate(0)[0].clipped;
  const double expected = evaluate(97 - 4)[0].clipped;
  EXPECT_NE(whole, expected);
  samples_[1].scores.begin()->second.head = &smaller;
  EXPECT_EQ(evaluate(0)[0].clipped, expected);
}

TEST_F(MicroBatchTest, AScoredTokenThatNotAllModelsHaveIsAnError) {
  try {
    EvaluateMicroBatch(*weights_,
                       MakeTrainedAdapter(weights_->config),
                       {{.name = "tokens",
                         .student = ViewName::kNoneReference,
                         .target = OneHot{},
                         .weight = 1.0}},
                       samples_,
                       {.vocabulary = 60});
    FAIL() << "it was read";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                testing::HasSubstr("share only the tokens below 60"));
  }
}

TEST_F(MicroBatchTest, TheSameMicroBatchHasTheSameBits) {
  EXPECT_TRUE(at::equal(Run(60).gradient, Run(60).gradient));
}

TEST_F(MicroBatchTest, APackThatDoesNotFitIsSplitAndNothingCountsTwice) {
  const Outcome expected = Run(100000);
  // The three references together have 120 rows; the first reference has 64.
  SmallMemory memory(100 * 48 * 4);
  const Outcome outcome = Run(100000);
  EXPECT_GE(memory.num_refused(), 1);
  ExpectEqual(outcome, expected);
}

TEST_F(MicroBatchTest, APackThatMustNotBeSplitIsAnErrorThatSaysWhatToDo) {
  limits_.splits_packs = false;
  const Outcome expected = Run(100000);
  SmallMemory memory(100 * 48 * 4);
  try {
    Run(100000);
    FAIL() << "it was split";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                testing::HasSubstr("lower trainer.pack_tokens"));
  }
  // Shorter packs fit from the beginning.
  ExpectEqual(Run(60), expected);
}

TEST_F(MicroBatchTest, APartThatDoesNotFitAloneIsAnError) {
  SmallMemory memory(30 * 48 * 4);
  EXPECT_THROW(Run(100000), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace dapd
