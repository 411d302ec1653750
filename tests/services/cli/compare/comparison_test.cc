#include "services/cli/compare/comparison.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/utf8.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RunResults MakeRun(const std::string& name,
                   const std::string& rate,
                   const std::string& seed,
                   double accuracy) {
  RunResults run;
  run.name = name;
  run.folder = "runs/" + name;
  run.finished = true;
  run.step = run.steps = 2;
  run.loss = 0.25;
  run.settings = {{"trainer.learning_rate", rate},
                  {"run.seed", seed},
                  {"run.name", name},
                  {"trainer.listen", "127.0.0.1:2" + seed},
                  {"trainer.steps", "2"}};
  run.history = {{"stride", 1},
                 {"last_step", 2},
                 {"steps", {1, 2}},
                 {"series", {{"loss", {0.5, 0.25}}, {"unshown", {1, 2}}}}};
  run.before.figures = {{"accuracy", {0.1, 0.05, 0.2}}};
  run.after.figures = {
      {"accuracy", {accuracy, accuracy - 0.1, accuracy + 0.1}},
      {"unclipped_divergence/entangled_rollout", {0.3, 0.2, 0.4}}};
  return run;
}

// Newcombe 1998, table II (a), compares 56 of 70 with 48 of 80.
TEST(DifferenceTest, IsNewcombesSquareAndAdd) {
  const Interval difference =
      Difference({0.8, 0.691834, 0.876953}, {0.6, 0.490455, 0.700382});
  EXPECT_NEAR(difference.mean, 0.2, 1e-12);
  EXPECT_NEAR(difference.low, 0.0524, 1e-4);
  EXPECT_NEAR(difference.high, 0.3339, 1e-4);
}

TEST(CompareRunsTest, WhereARunLiesIsNoDifference) {
  const Comparison comparison = CompareRuns(
      {MakeRun("a", "0.001", "1", 0.4), MakeRun("b", "0.002", "1", 0.6)});
  EXPECT_THAT(comparison.differing, ElementsAre("trainer.learning_rate"));
  ASSERT_EQ(comparison.figures.size(), 2u);
  const ComparedFigure& accuracy = comparison.figures[0];
  EXPECT_EQ(accuracy.name, "accuracy");
  EXPECT_TRUE(accuracy.is_share);
  EXPECT_FALSE(accuracy.runs[0].against_first.has_value());
  EXPECT_NEAR(accuracy.runs[1].change->mean, 0.5, 1e-12);
  EXPECT_NEAR(accuracy.runs[1].against_first->mean, 0.2, 1e-12);
  EXPECT_TRUE(accuracy.groups.empty());
  const ComparedFigure& divergence = comparison.figures[1];
  EXPECT_FALSE(divergence.is_share);
  EXPECT_FALSE(divergence.runs[0].change.has_value());
}

TEST(CompareRunsTest, RunsOfOneSettingAreAGroupOverTheirSeeds) {
  const Comparison comparison = CompareRuns({MakeRun("a1", "0.001", "1", 0.4),
                                             MakeRun("b1", "0.002", "1", 0.6),
                                             MakeRun("a2", "0.001", "2", 0.5)});
  ASSERT_EQ(comparison.groups.size(), 2u);
  EXPECT_EQ(comparison.groups[0].name, "trainer.learning_rate=0.001");
  EXPECT_THAT(comparison.groups[0].runs, ElementsAre(0u, 2u));
  const auto& rows = comparison.figures[0].groups;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[0].after->mean, 0.45, 1e-12);
  // Student's t with one degree of freedom gives 12.706 x 0.05 to either side;
  // the interval is cut to shares between 0 and 1.
  EXPECT_EQ(rows[0].after->low, 0.0);
  EXPECT_EQ(rows[0].after->high, 1.0);
  // A group of one run has that run's own interval.
  EXPECT_NEAR(rows[1].after->high, 0.7, 1e-12);
  EXPECT_NEAR(rows[1].against_first->mean, 0.15, 1e-12);
}

TEST(CompareRunsTest, AGroupSaysThatItsRunsHaveFewerSeeds) {
  const std::vector<RunResults> runs = {MakeRun("a", "0.001", "42", 0.4),
                                        MakeRun("b", "0.001", "42", 0.4),
                                        MakeRun("c", "0.001", "7", 0.5)};
  const Comparison comparison = CompareRuns(runs);
  EXPECT_EQ(comparison.groups.at(0).num_seeds, 2u);
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("all (3 runs of 2 seeds)"));
  EXPECT_EQ(ComparisonJson(comparison)["groups"][0]["seeds"], 2);
  EXPECT_THAT(ComparisonHtml(comparison), HasSubstr("all (3 runs of 2 seeds)"));
  EXPECT_THAT(ComparisonText(CompareRuns({runs[0], runs[1]})),
              HasSubstr("all (2 runs of 1 seed)"));
  EXPECT_THAT(ComparisonText(CompareRuns({runs[0], runs[2]})),
              HasSubstr("all (2 runs)"));
}

TEST(CompareRunsTest, TheIntervalOverSeedsIsStudents) {
  const Comparison comparison = CompareRuns(
      {MakeRun("a1", "0.001", "1", 0.45), MakeRun("a2", "0.001", "2", 0.46)});
  const Interval after = *comparison.figures[0].groups.at(0).after;
  EXPECT_NEAR(after.mean, 0.455, 1e-12);
  // Student's t with one degree of freedom gives 12.706 x 0.005.
  EXPECT_NEAR(after.high, 0.455 + 0.06353, 1e-4);
}

// Without an end, its figure before training must not move the mean before.
TEST(CompareRunsTest, ARunWithoutAnEndHasNoPartInAChange) {
  std::vector<RunResults> runs = {MakeRun("a1", "0.001", "1", 0.4),
                                  MakeRun("a2", "0.001", "2", 0.5),
                                  MakeRun("a3", "0.001", "3", 0.0)};
  runs[2].before.figures["accuracy"] = {0.7, 0.6, 0.8};
  runs[2].after = {};
  const ComparedFigure::Row row =
      CompareRuns(std::move(runs)).figures.at(0).groups.at(0);
  EXPECT_NEAR(row.before->mean, 0.3, 1e-12);
  EXPECT_NEAR(row.after->mean, 0.45, 1e-12);
  EXPECT_NEAR(row.change->mean, 0.35, 1e-12);
}

TEST(CompareRunsTest, GroupsOfASweepHaveItsNamesForThem) {
  const std::vector<RunResults> sweep = {
      MakeRun("slow-seed-1", "0.001", "1", 0.4),
      MakeRun("fast-seed-1", "0.002", "1", 0.6),
      MakeRun("slow-seed-2", "0.001", "2", 0.5)};
  const auto names = [](std::vector<RunResults> runs) {
    std::vector<std::string> found;
    for (const RunGroup& group : CompareRuns(std::move(runs)).groups) {
      found.push_back(group.name);
    }
    return found;
  };
  const std::vector<std::string> settings = {"trainer.learning_rate=0.001",
                                             "trainer.learning_rate=0.002"};
  EXPECT_THAT(names(sweep), ElementsAre("slow", "fast"));
  // The names have a seed of another run, another prefix within a group, or no
  // seed.
  for (const std::string name : {"slow-seed-3", "other-seed-2", "slow"}) {
    std::vector<RunResults> runs = sweep;
    runs[2].name = name;
    EXPECT_EQ(names(runs), settings) << name;
  }
  std::vector<RunResults> runs = sweep;
  runs[1] = MakeRun("slow-seed-1", "0.002", "1", 0.6);
  runs[1].folder = "elsewhere/slow-seed-1";
  EXPECT_EQ(names(runs), settings);
}

TEST(CompareRunsTest, LongSettingsTellGroupsApartAndAreCutInTheirNames) {
  const std::string longer(100, 'x');
  const Comparison comparison =
      CompareRuns({MakeRun("a1", longer + "1", "1", 0.5),
                   MakeRun("a2", longer + "1", "2", 0.5),
                   MakeRun("b1", longer + "2", "1", 0.5)});
  ASSERT_EQ(comparison.groups.size(), 2u);
  EXPECT_LT(comparison.groups[0].name.size(), 70u);
  EXPECT_EQ(comparison.groups[1].name, comparison.groups[0].name + " (2)");
  // If runs agree, the group has the interval that each run has.
  EXPECT_NEAR(comparison.figures[0].groups[0].after->low, 0.4, 1e-12);
}

// Both figures are the same sum of fifths, added up in another order.
TEST(CompareRunsTest, RunsThatDifferByRoundingAgree) {
  const double one = (0.2 + 0.4 + 0.6) / 4;
  const double other = (0.6 + 0.4 + 0.2) / 4;
  ASSERT_NE(one, other);
  const Comparison comparison = CompareRuns(
      {MakeRun("a1", "0.001", "1", one), MakeRun("a2", "0.001", "2", other)});
  EXPECT_NEAR(comparison.figures[0].groups[0].after->low, one - 0.1, 1e-12);
}

TEST(CompareRunsTest, LongSettingsAreNotCutInsideACharacter) {
  std::string text = "xy";  // 29 and 37 bytes end inside a character
  for (int i = 0; i < 30; ++i) text += "\xC3\xA9";
  const Comparison comparison = CompareRuns(
      {MakeRun("a", text, "1", 0.5), MakeRun("b", text + "z", "1", 0.5)});
  EXPECT_TRUE(IsUtf8(comparison.groups[0].name)) << comparison.groups[0].name;
  EXPECT_THAT(ComparisonText(comparison), Not(HasSubstr("\\x")));
}

// Makes a run in which `share` of the answers contain " = ", at steps 0, 50 and
// 100.
RunResults MarkedRun(const std::string& name,
                     const std::string& seed,
                     double share) {
  RunResults run = MakeRun(name, "0.001", seed, 0.5);
  for (const int64_t step : {0, 50, 100}) {
    HeldOutFigures& held_out = run.evaluations[step];
    held_out.marker = " = ";
    const double mean = share + 0.001 * static_cast<double>(step);
    held_out.figures["marker_rate"] = {mean, mean - 0.05, mean + 0.05};
  }
  run.before = run.evaluations[0];
  run.after = run.evaluations[100];
  return run;
}

TEST(CompareRunsTest, EvaluationsWithinRunsAreCurvesByRunAndGroup) {
  RunResults unfinished = MarkedRun("b1", "1", 0.2);
  unfinished.settings["trainer.learning_rate"] = "0.002";
  unfinished.evaluations.erase(100);
  const Comparison comparison = CompareRuns(
      {MarkedRun("a1", "1", 0.4), MarkedRun("a2", "2", 0.6), unfinished});
  ASSERT_EQ(comparison.figures.size(), 1u);
  const ComparedFigure& figure = comparison.figures[0];
  EXPECT_EQ(figure.name, "marker_rate");
  EXPECT_EQ(figure.marker, " = ");
  EXPECT_TRUE(figure.is_share);
  EXPECT_NEAR(figure.runs[0].change->mean, 0.1, 1e-12);
  EXPECT_THAT(figure.steps, ElementsAre(0, 50, 100));
  EXPECT_NEAR(figure.run_curves[1][1]->mean, 0.65, 1e-12);
  EXPECT_FALSE(figure.run_curves[2][2].has_value());
  ASSERT_EQ(figure.group_curves.size(), 2u);
  EXPECT_NEAR(figure.group_curves[0][1]->mean, 0.55, 1e-12);
  // Student's t with one degree of freedom gives 12.706 x 0.1; the interval is
  // cut to shares between 0 and 1.
  EXPECT_EQ(figure.group_curves[0][1]->high, 1.0);
  const std::string text = ComparisonText(comparison);
  EXPECT_THAT(text, HasSubstr("held out: marker_rate, with \" = \""));
  EXPECT_THAT(text, HasSubstr("\n  step "));
  EXPECT_THAT(text, HasSubstr("20.0 % [15.0, 25.0]"));
  const nlohmann::ordered_json json = ComparisonJson(comparison);
  EXPECT_EQ(json["figures"][0]["marker"], " = ");
  EXPECT_EQ(json["figures"][0]["steps"].size(), 3u);
  EXPECT_TRUE(json["figures"][0]["runs"][2]["by_step"][2].is_null());
  EXPECT_THAT(ComparisonHtml(comparison),
              HasSubstr("marker rate, with \\\" = \\\""));
}

// In percent most claims would be 0.0.
TEST(CompareRunsTest, TheProbabilityOfClaimsIsANumber) {
  RunResults run = MakeRun("a", "0.001", "1", 0.5);
  run.before.figures["claim_probability/none"] = {2e-5, 1e-5, 3e-5};
  run.after = run.before;
  const Comparison comparison = CompareRuns({run});
  const ComparedFigure& figure = comparison.figures.back();
  EXPECT_EQ(figure.name, "claim_probability/none");
  EXPECT_FALSE(figure.is_share);
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("2e-05 [1e-05, 3e-05]"));
}

TEST(CompareRunsTest, SharesOfDifferentTextsAreDifferentFigures) {
  RunResults other = MarkedRun("b", "1", 0.2);
  other.before.marker = other.after.marker = "there_fore";
  for (auto& [step, held_out] : other.evaluations) {
    held_out.marker = "there_fore";
  }
  const Comparison comparison = CompareRuns({MarkedRun("a", "1", 0.4), other});
  ASSERT_EQ(comparison.figures.size(), 2u);
  for (const ComparedFigure& figure : comparison.figures) {
    EXPECT_EQ(figure.name, "marker_rate");
    EXPECT_FALSE(figure.runs[1].against_first.has_value());
  }
  EXPECT_EQ(comparison.figures[1].marker, "there_fore");
  EXPECT_FALSE(comparison.figures[0].runs[1].after.has_value());
  EXPECT_THAT(ComparisonHtml(comparison),
              HasSubstr("marker rate, with \\\"there_fore\\\""));
}

TEST(CompareRunsTest, TwoEvaluationsAreNoCurve) {
  RunResults run = MarkedRun("a", "1", 0.4);
  run.evaluations.erase(50);
  const Comparison comparison = CompareRuns({run});
  EXPECT_TRUE(comparison.figures[0].steps.empty());
  EXPECT_THAT(ComparisonText(comparison), Not(HasSubstr("\n  step ")));
}

TEST(CompareRunsTest, RunsOfOneNameAreToldApart) {
  RunResults other = MakeRun("a", "2", "1", 0.5);
  other.folder = "elsewhere/a";
  const Comparison comparison =
      CompareRuns({MakeRun("a", "1", "1", 0.5), other});
  EXPECT_EQ(comparison.runs[0].name, "runs/a");
  EXPECT_EQ(comparison.runs[1].name, "elsewhere/a");
}

TEST(ComparisonTextTest, TablesHaveEveryRunAndNoForeignControlCharacters) {
  RunResults hostile = MakeRun("b\x1b[2J", "0.002", "1", 0.6);
  hostile.finished = false;
  hostile.steps = 9;
  hostile.after = {};
  const std::string text =
      ComparisonText(CompareRuns({MakeRun("a", "0.001", "1", 0.4), hostile}));
  EXPECT_THAT(text, HasSubstr("2 of 9"));
  EXPECT_THAT(text, HasSubstr("40.0 % [30.0, 50.0]"));
  EXPECT_THAT(text, HasSubstr("+30.0 points ["));
  EXPECT_THAT(text, HasSubstr("b\\x1b[2J"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(ComparisonTextTest, ManySettingsStandBelowEachOther) {
  const RunResults a = MakeRun("a", "0.001", "1", 0.4);
  RunResults b = MakeRun("b", "0.002", "2", 0.4);
  EXPECT_THAT(ComparisonText(CompareRuns({a, b})),
              StartsWith("  run  steps  loss  run.seed  trainer."));
  b.settings["lora.rank"] = "8";
  EXPECT_THAT(ComparisonText(CompareRuns({a, b})),
              StartsWith("  run                    a      b\n"
                         "  steps                  2      2\n"
                         "  loss                   0.25   0.25\n"));
}

TEST(ComparisonTextTest, ADifferenceThatRoundsToNothingHasNoSign) {
  for (const double accuracy : {0.0999, 0.1, 0.1001}) {
    const std::string text =
        ComparisonText(CompareRuns({MakeRun("a", "0.001", "1", accuracy)}));
    EXPECT_THAT(text, HasSubstr(" 0.0 points [")) << accuracy;
  }
  RunResults run = MakeRun("a", "0.001", "1", 0.1);
  run.before.figures["accuracy"] = {0.1, 0.1, 0.1};
  run.after.figures["accuracy"] = {0.1, 0.1, 0.1};
  run.after.figures["accuracy"].low -= 1e-9;
  EXPECT_THAT(ComparisonText(CompareRuns({run})),
              HasSubstr(" 0.0 points [0.0, 0.0]"));
}

TEST(ComparisonHtmlTest, CarriesTheCurvesThatItShowsAndNoMore) {
  const std::string html =
      ComparisonHtml(CompareRuns({MakeRun("</script>", "1", "1", 0.5)}));
  EXPECT_THAT(html, HasSubstr("\"loss\":[0.5,0.25]"));
  EXPECT_THAT(html, Not(HasSubstr("unshown")));
  EXPECT_THAT(html, Not(HasSubstr("{{")));
  EXPECT_THAT(html, HasSubstr("\\u003c/script>"));
}

TEST(ComparisonHtmlTest, IsKnownByItsHead) {
  const std::string html =
      ComparisonHtml(CompareRuns({MakeRun("a", "1", "1", 0.5)}));
  EXPECT_TRUE(IsComparisonHtml(html.substr(0, 4096)));
  EXPECT_FALSE(IsComparisonHtml("<!doctype html>\n<title>a</title>"));
}

}  // namespace
}  // namespace dapd
