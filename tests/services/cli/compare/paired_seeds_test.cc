#include "services/cli/compare/paired_seeds.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Makes a run of the group `rate`; before training its figure is `before`.
RunResults MakeRun(const std::string& rate,
                   int seed,
                   double before,
                   double after) {
  RunResults run;
  run.name = absl::StrCat("rate-", rate, "-seed-", seed);
  run.folder = "runs/" + run.name;
  run.finished = true;
  run.step = run.steps = 2;
  run.settings = {{"trainer.learning_rate", rate},
                  {"run.seed", absl::StrCat(seed)}};
  run.history = {{"stride", 1},
                 {"last_step", 2},
                 {"steps", {1, 2}},
                 {"series", {{"loss", {0.5, 0.25}}}}};
  run.before.figures = {{"accuracy", {before, before - 0.05, before + 0.05}}};
  run.after.figures = {{"accuracy", {after, after - 0.05, after + 0.05}}};
  return run;
}

// Returns two settings at four seeds in different orders.
std::vector<RunResults> TwoSettings() {
  return {MakeRun("1", 1, 0.52, 0.61),
          MakeRun("1", 2, 0.50, 0.58),
          MakeRun("1", 3, 0.55, 0.66),
          MakeRun("1", 4, 0.56, 0.63),
          MakeRun("2", 4, 0.56, 0.72),
          MakeRun("2", 3, 0.55, 0.60),
          MakeRun("2", 2, 0.50, 0.55),
          MakeRun("2", 1, 0.52, 0.70)};
}

// The expected values are scipy.stats.ttest_rel(after, before) and
// ttest_rel(second, first), each with confidence_interval(0.95).
TEST(PairBySeedTest, DifferencesAreStudentsOverPairs) {
  Comparison comparison = CompareRuns(TwoSettings());
  const ComparedFigure::Row independent = comparison.figures[0].groups[0];
  ASSERT_TRUE(PairBySeed(&comparison).ok());
  const ComparedFigure& accuracy = comparison.figures[0];
  ASSERT_EQ(accuracy.groups.size(), 2U);
  const Interval change = *accuracy.groups[0].change;
  EXPECT_NEAR(change.mean, 0.0875, 1e-12);
  EXPECT_NEAR(change.low, 0.060324691162039784, 1e-6);
  EXPECT_NEAR(change.high, 0.11467530883796015, 1e-6);
  EXPECT_LT(change.high - change.low,
            independent.change->high - independent.change->low);
  const Interval against_first = *accuracy.groups[1].against_first;
  EXPECT_NEAR(against_first.mean, 0.0225, 1e-12);
  EXPECT_NEAR(against_first.low, -0.10304538912823188, 1e-6);
  EXPECT_NEAR(against_first.high, 0.14804538912823187, 1e-6);
  EXPECT_FALSE(accuracy.groups[0].against_first.has_value());
  // Figures that are not differences keep their intervals.
  EXPECT_EQ(accuracy.groups[0].after->high, independent.after->high);
  EXPECT_EQ(accuracy.runs[7].against_first->high,
            CompareRuns(TwoSettings()).figures[0].runs[7].against_first->high);
}

TEST(PairBySeedTest, PairsThatAgreeSayNothingAboutTheirSpread) {
  Comparison comparison = CompareRuns({MakeRun("1", 1, 0.1, 0.3),
                                       MakeRun("1", 2, 0.4, 0.6),
                                       MakeRun("1", 3, 0.7, 0.9)});
  const Interval independent = *comparison.figures[0].groups[0].change;
  ASSERT_TRUE(PairBySeed(&comparison).ok());
  const Interval change = *comparison.figures[0].groups[0].change;
  EXPECT_NEAR(change.mean, 0.2, 1e-12);
  EXPECT_NEAR(change.low, independent.low, 1e-12);
  EXPECT_NEAR(change.high, independent.high, 1e-12);
}

TEST(PairBySeedTest, APairOfWhichAFigureIsMissingIsLeftOut) {
  std::vector<RunResults> runs = TwoSettings();
  runs[4].after = {};  // seed 4
  runs[5].after = {};  // seed 3
  Comparison comparison = CompareRuns(runs);
  ASSERT_TRUE(PairBySeed(&comparison).ok());
  const Interval left =
      *comparison.figures[0].groups[1].against_first;  // 0.09 and -0.03
  EXPECT_NEAR(left.mean, 0.03, 1e-12);
  // Student's t with one degree of freedom gives 12.706 x 0.06.
  EXPECT_NEAR(left.high, 0.03 + 0.76237, 1e-4);
  runs[6].after = {};
  comparison = CompareRuns(runs);
  ASSERT_TRUE(PairBySeed(&comparison).ok());
  EXPECT_FALSE(comparison.figures[0].groups[1].against_first.has_value());
}

TEST(PairBySeedTest, WhatHasNoPartnerIsNamed) {
  struct Case {
    std::vector<RunResults> runs;
    std::string said;
  };
  const RunResults one = MakeRun("1", 1, 0.5, 0.6);
  const RunResults two = MakeRun("1", 2, 0.5, 0.6);
  const RunResults other = MakeRun("2", 1, 0.5, 0.6);
  for (const Case& c :
       {Case{{one, two, other}, "'rate-2' has no run of seed 2, 'rate-1' has"},
        Case{{other, one, two}, "'rate-2' has no run of seed 2, 'rate-1' has"},
        Case{{one, two, one}, "has two runs of seed 1"},
        Case{{one, other}, "there is only one seed"},
        Case{{one}, "there is only one seed"}}) {
    Comparison comparison = CompareRuns(c.runs);
    const absl::Status status = PairBySeed(&comparison);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.said));
    EXPECT_FALSE(comparison.is_paired);
  }
}

TEST(PairBySeedTest, WhoReadsItIsTold) {
  Comparison comparison = CompareRuns(TwoSettings());
  EXPECT_THAT(ComparisonText(comparison), Not(HasSubstr("paired")));
  EXPECT_FALSE(ComparisonJson(comparison)["paired"].get<bool>());
  ASSERT_TRUE(PairBySeed(&comparison).ok());
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("over seeds, paired\n"));
  EXPECT_TRUE(ComparisonJson(comparison)["paired"].get<bool>());
  EXPECT_THAT(ComparisonHtml(comparison), HasSubstr("\"paired\":true"));
}

}  // namespace
}  // namespace dapd
