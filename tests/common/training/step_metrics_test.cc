#include "common/training/step_metrics.h"

#include <limits>

#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/training/metric_table.h"
#include "dapd/v1/rank.pb.h"

namespace dapd {
namespace {

std::vector<Term> TwoTerms() {
  Term first;
  first.name = "first";
  first.weight = 0.5;
  Term second;
  second.name = "second";
  second.weight = 2.0;
  return {first, second};
}

TEST(ObjectiveAccumulatorTest, ValuesAreMeansOfMicroBatchTokenMeans) {
  ObjectiveAccumulator accumulator(TwoTerms());
  accumulator.Add({{.clipped = 2.0,
                    .unclipped = 4.0,
                    .clipped_tokens = 1,
                    .tokens = 4,
                    .denominator = 4},
                   {.clipped = 3.0,
                    .unclipped = 3.0,
                    .clipped_tokens = 0,
                    .tokens = 1,
                    .denominator = 1}});
  accumulator.Add({{.clipped = 1.0,
                    .unclipped = 1.0,
                    .clipped_tokens = 1,
                    .tokens = 1,
                    .denominator = 1},
                   {.clipped = 0.0,
                    .unclipped = 0.0,
                    .clipped_tokens = 2,
                    .tokens = 3,
                    .denominator = 3}});
  const ObjectiveMetrics metrics = accumulator.Finish();
  EXPECT_DOUBLE_EQ(metrics.terms[0].value, (0.5 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(metrics.terms[0].unclipped, (1.0 + 1.0) / 2);
  EXPECT_EQ(metrics.terms[0].tokens, 5);
  EXPECT_DOUBLE_EQ(metrics.terms[0].clipped_fraction, 2.0 / 5);
  EXPECT_DOUBLE_EQ(metrics.terms[1].value, 1.5);
  EXPECT_DOUBLE_EQ(metrics.loss, 0.5 * 0.75 + 2.0 * 1.5);
}

TEST(ObjectiveAccumulatorTest, AStepWithoutAMicroBatchHasNoLoss) {
  const ObjectiveMetrics metrics = ObjectiveAccumulator(TwoTerms()).Finish();
  EXPECT_EQ(metrics.loss, 0.0);
  EXPECT_EQ(metrics.terms[0].value, 0.0);
  EXPECT_EQ(metrics.terms[0].clipped_fraction, 0.0);
}

TEST(ObjectiveAccumulatorTest, ALossIsFiniteIfEveryTermWithAWeightIs) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const DivergenceSums broken = {
      .clipped = nan, .unclipped = nan, .tokens = 1, .denominator = 1};
  std::vector<Term> terms = TwoTerms();
  terms[1].weight = 0.0;  // only measured
  ObjectiveAccumulator accumulator(terms);
  accumulator.Add({{}, broken});
  EXPECT_TRUE(accumulator.HasFiniteLoss());
  accumulator.Add({broken, {}});
  EXPECT_FALSE(accumulator.HasFiniteLoss());
}

TEST(ObjectiveAccumulatorTest, OnlyARoutedTermHasSharesOfRegimes) {
  std::vector<Term> terms = TwoTerms();
  terms[1].target = Routed{};
  ObjectiveAccumulator here(terms);
  ObjectiveAccumulator there(terms);
  here.Add({{}, {.regimes = {1, 0, 2, 0}}});
  there.Add({{}, {.regimes = {0, 0, 4, 1}}});
  ASSERT_TRUE(here.Merge(there.Sums()).ok());
  const ObjectiveMetrics metrics = here.Finish();
  EXPECT_FALSE(metrics.terms[0].regime_shares.has_value());
  EXPECT_EQ(*metrics.terms[1].regime_shares,
            (std::array<double, kNumRegimes>{0.125, 0.0, 0.75, 0.125}));
  const nlohmann::ordered_json json = ToJson(metrics);
  EXPECT_FALSE(json.at("terms").at("first").contains("regimes"));
  EXPECT_EQ(json.at("terms").at("second").at("regimes").at("first_surer"),
            0.75);
  EXPECT_FALSE(here.Merge(ObjectiveAccumulator(TwoTerms()).Sums()).ok())
      << "another rank with another target";
}

// A micro-batch without a row of a teacher does not count for it.
TEST(ObjectiveAccumulatorTest, ATeacherHasTheMeanOfItsOwnTokensOnAllRanks) {
  const auto sums = [](double unclipped, int64_t tokens) {
    return DivergenceSums{.unclipped = unclipped,
                          .tokens = tokens,
                          .denominator = static_cast<double>(tokens)};
  };
  ObjectiveAccumulator here(TwoTerms());
  ObjectiveAccumulator there(TwoTerms());
  here.Add({{}, {}}, {{}, {{"math", sums(3, 4)}, {"base", sums(1, 2)}}});
  here.Add({{}, {}}, {{}, {{"base", sums(2, 4)}}});
  there.Add({{}, {}}, {{}, {{"math", sums(6, 2)}, {"code", sums(5, 1)}}});
  v1::ObjectiveSums sent;
  ASSERT_TRUE(sent.ParseFromString(there.Sums().SerializeAsString()));
  ASSERT_TRUE(here.Merge(sent).ok());
  const ObjectiveMetrics metrics = here.Finish();
  EXPECT_TRUE(metrics.terms[0].by_teacher.empty());
  const auto& by_teacher = metrics.terms[1].by_teacher;
  ASSERT_EQ(by_teacher.size(), 3u);
  EXPECT_EQ(by_teacher.at("base").unclipped, 0.5);
  EXPECT_EQ(by_teacher.at("base").tokens, 6);
  EXPECT_EQ(by_teacher.at("code").unclipped, 5.0);
  EXPECT_EQ(by_teacher.at("math").unclipped, 1.5);
  EXPECT_EQ(by_teacher.at("math").tokens, 6);
}

TEST(ObjectiveAccumulatorTest, AMicroBatchWithoutATokenOfATermAddsNothingToIt) {
  ObjectiveAccumulator accumulator(TwoTerms());
  accumulator.Add({{.clipped = 2.0,
                    .unclipped = 4.0,
                    .clipped_tokens = 1,
                    .tokens = 4,
                    .denominator = 4},
                   {}});
  accumulator.Add({{}, {}});
  const ObjectiveMetrics metrics = accumulator.Finish();
  EXPECT_DOUBLE_EQ(metrics.terms[0].value, 0.5 / 2);
  EXPECT_DOUBLE_EQ(metrics.terms[0].unclipped, 1.0 / 2);
  EXPECT_EQ(metrics.terms[1].value, 0.0);
  EXPECT_EQ(metrics.terms[1].unclipped, 0.0);
  EXPECT_EQ(metrics.terms[1].clipped_fraction, 0.0);
  EXPECT_DOUBLE_EQ(metrics.loss, 0.5 * 0.25);
}

TEST(ObjectiveAccumulatorTest, TheRanksTogetherGiveWhatOneRankGives) {
  const std::vector<DivergenceSums> first = {{.clipped = 0.1,
                                              .unclipped = 0.7,
                                              .clipped_tokens = 1,
                                              .tokens = 3,
                                              .denominator = 3},
                                             {.clipped = 0.3,
                                              .unclipped = 0.9,
                                              .clipped_tokens = 0,
                                              .tokens = 7,
                                              .denominator = 7}};
  const std::vector<DivergenceSums> second = {{.clipped = 0.2,
                                               .unclipped = 1.1,
                                               .clipped_tokens = 1,
                                               .tokens = 9,
                                               .denominator = 9},
                                              {.clipped = 0.4,
                                               .unclipped = 0.4,
                                               .clipped_tokens = 2,
                                               .tokens = 3,
                                               .denominator = 3}};
  ObjectiveAccumulator one(TwoTerms());
  one.Add(first);
  one.Add(second);
  ObjectiveAccumulator rank0(TwoTerms());
  rank0.Add(first);
  ObjectiveAccumulator rank1(TwoTerms());
  rank1.Add(second);
  v1::ObjectiveSums sent;
  ASSERT_TRUE(sent.ParseFromString(rank1.Sums().SerializeAsString()));
  ASSERT_TRUE(rank0.Merge(sent).ok());
  EXPECT_EQ(ToJson(rank0.Finish()), ToJson(one.Finish()));
  sent.mutable_terms()->RemoveLast();
  EXPECT_TRUE(absl::IsDataLoss(rank0.Merge(sent)));
  EXPECT_EQ(ToJson(rank0.Finish()), ToJson(one.Finish()));
}

}  // namespace
}  // namespace dapd
