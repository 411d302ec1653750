#include "services/trainer/record/evaluation_report.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

EvaluationReport Report(const std::string& marker) {
  EvaluationReport report{.policy_version = 3,
                          .adapter_digest = "abc",
                          .problems = 8,
                          .samples = 4,
                          .graded_problems = 8,
                          .accuracy = Interval{0.5, 0.4, 0.6},
                          .format_rate = {1.0, 0.9, 1.0},
                          .truncated = Interval{0.125, 0.0, 0.25}};
  if (!marker.empty()) {
    report.marker = marker;
    report.marker_rate = Interval{0.25, 0.125, 0.375};
  }
  return report;
}

TEST(EvaluationReportTest, ReadsWhatItWrote) {
  const std::string path = TempPath("step-000003.json");
  ASSERT_TRUE(WriteEvaluationReport(path, Report(" = ")).ok());
  const auto read = ReadEvaluationReport(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(Report(" = ")));
  EXPECT_EQ(read->marker, " = ");
  ASSERT_TRUE(read->marker_rate.has_value());
  EXPECT_EQ(read->marker_rate->high, 0.375);
  ASSERT_TRUE(read->truncated.has_value());
  EXPECT_EQ(read->truncated->high, 0.25);
  EXPECT_FALSE(read->repeated.has_value()) << "as in older runs";
}

TEST(EvaluationReportTest, EveryFigureIsReadBack) {
  const std::string path = TempPath("step-000003.json");
  EvaluationReport report = Report("");
  report.held_out_digest = "these";
  report.repeated = Interval{0.75, 0.5, 1.0};
  report.mean_tokens = 12.5;
  report.divergences = {{"a", {1.5, 1.0, 2.0}, 2}};
  report.seconds = 2.5;
  ASSERT_TRUE(WriteEvaluationReport(path, report).ok());
  const auto read = ReadEvaluationReport(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->policy_version, 3);
  EXPECT_EQ(read->adapter_digest, "abc");
  EXPECT_EQ(read->held_out_digest, "these");
  EXPECT_EQ(read->problems, 8);
  EXPECT_EQ(read->samples, 4);
  EXPECT_EQ(read->format_rate.low, 0.9);
  ASSERT_TRUE(read->repeated.has_value());
  EXPECT_EQ(read->repeated->mean, 0.75);
  EXPECT_EQ(read->repeated->low, 0.5);
  EXPECT_EQ(read->repeated->high, 1.0);
  EXPECT_EQ(read->mean_tokens, 12.5);
  ASSERT_EQ(read->divergences.size(), 1u);
  EXPECT_EQ(read->divergences[0].unclipped.mean, 1.5);
  EXPECT_EQ(read->divergences[0].problems, 2);
  EXPECT_EQ(read->seconds, 2.5);
}

TEST(EvaluationReportTest, ADivergenceThatIsNotFiniteIsNoDamage) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string path = TempPath("step-000003.json");
  EvaluationReport report = Report("");
  report.divergences = {{"a", {kNan, kNan, kNan}},
                        {"b", {kInfinity, 0.5, kInfinity}}};
  ASSERT_TRUE(WriteEvaluationReport(path, report).ok());
  const auto read = ReadEvaluationReport(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->divergences.size(), 2u);
  EXPECT_TRUE(std::isnan(read->divergences[0].unclipped.mean));
  EXPECT_TRUE(std::isnan(read->divergences[1].unclipped.high));
  EXPECT_EQ(read->divergences[1].unclipped.low, 0.5);
  EXPECT_EQ(ToJson(*read).dump(), ToJson(report).dump());
  EXPECT_THAT(CompareEvaluations(*read, std::nullopt),
              HasSubstr("true KL a                     nan [nan, nan]"));
}

TEST(EvaluationReportTest, ClaimsAreReadBackWithTheirAnswers) {
  const std::string path = TempPath("step-000003.json");
  EvaluationReport report = Report("");
  report.claims =
      ClaimFigures{.problems = 5,
                   .none = {0.01, 0.005, 0.015},
                   .cross = Interval{0.5, 0.25, 0.75},
                   .answers = {{"a", {7, 8, 9}, {0, 2}, 0.125, 0.25},
                               {"b", {}, {0}, 0.5, std::nullopt}}};
  ASSERT_TRUE(WriteEvaluationReport(path, report).ok());
  const auto read = ReadEvaluationReport(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(read->claims.has_value());
  EXPECT_EQ(ToJson(*read), ToJson(report));
  EXPECT_EQ(read->claims->problems, 5);
  EXPECT_EQ(read->claims->none.low, 0.005);
  EXPECT_EQ(read->claims->cross->high, 0.75);
  ASSERT_EQ(read->claims->answers.size(), 2u);
  EXPECT_EQ(ToJson(read->claims->answers), ToJson(report.claims->answers));
  EXPECT_EQ(read->claims->answers[0].cross, 0.25);
  EXPECT_FALSE(read->claims->answers[1].cross.has_value());
  EXPECT_FALSE(ToJson(report).contains("claim_answers"))
      << "the summary has figures only";

  const std::string text = CompareEvaluations(Report(""), report);
  EXPECT_THAT(text,
              HasSubstr("  probability of claims, None   -                     "
                        "    0.0100 [0.0050, 0.0150]\n"));
  EXPECT_THAT(text, HasSubstr("claims, Cross "));
  EXPECT_THAT(CompareEvaluations(Report(""), Report("")),
              Not(HasSubstr("claims")));
}

TEST(EvaluationReportTest, WithoutAMarkerAFileIsAsInOlderRuns) {
  const std::string path = TempPath("before.json");
  ASSERT_TRUE(WriteEvaluationReport(path, Report("")).ok());
  EXPECT_THAT(ReadFile(path, 1 << 20).value(), Not(HasSubstr("marker")));
  EXPECT_THAT(ReadFile(path, 1 << 20).value(), Not(HasSubstr("claim")));
  const auto read = ReadEvaluationReport(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->marker_rate.has_value());
}

TEST(EvaluationReportTest, AccuracyIsOfTheProblemsThatCanBeGraded) {
  EXPECT_EQ(AccuracyText(Report("")), "accuracy 50.0 % [40.0, 60.0]");
  EvaluationReport some = Report("");
  some.graded_problems = 3;
  EXPECT_THAT(AccuracyText(some), HasSubstr("of the 3 problems with"));
  EXPECT_THAT(CompareEvaluations(some, some),
              HasSubstr("  accuracy (3 of 8)  50.0 % [40.0, 60.0]"));
  EvaluationReport none = Report("");
  none.graded_problems = 0;
  none.accuracy.reset();
  EXPECT_THAT(AccuracyText(none), HasSubstr("no accuracy"));
  EXPECT_THAT(CompareEvaluations(none, none), Not(HasSubstr("accuracy")));

  const std::string path = TempPath("ungraded.json");
  ASSERT_TRUE(WriteEvaluationReport(path, none).ok());
  const auto read = ReadEvaluationReport(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->accuracy.has_value());
  EXPECT_EQ(read->graded_problems, 0);
  // An older run's report does not say how many problems were graded.
  nlohmann::ordered_json json = ToJson(Report(""));
  json.erase("graded_problems");
  ASSERT_TRUE(WriteFileAtomically(path, json.dump()).ok());
  EXPECT_EQ(ReadEvaluationReport(path)->graded_problems, 8);
}

TEST(EvaluationReportTest, AHalfMarkerIsDamage) {
  const std::string path = TempPath("damaged.json");
  nlohmann::ordered_json json = ToJson(Report(" = "));
  json.erase("marker");
  ASSERT_TRUE(WriteFileAtomically(path, json.dump()).ok());
  const absl::Status status = ReadEvaluationReport(path).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr("damaged.json"));
}

TEST(CompareEvaluationsTest, TheMarkersShareStandsBelowTheOthers) {
  EXPECT_THAT(CompareEvaluations(Report(""), Report("")),
              Not(HasSubstr("with ")));
  EXPECT_THAT(
      CompareEvaluations(Report(" = "), Report(" = ")),
      HasSubstr("\n  with \" = \"   25.0 % [12.5, 37.5]     25.0 % [12.5"));
}

TEST(CompareEvaluationsTest, WhatWasCutOffAndWhatRepeatsIsCompared) {
  EvaluationReport older = Report("");
  older.truncated.reset();
  EXPECT_THAT(CompareEvaluations(older, older),
              Not(AnyOf(HasSubstr("cut off"), HasSubstr("repeating"))));
  EvaluationReport newer = Report("");
  newer.repeated = Interval{0.25, 0.125, 0.375};
  const std::string text = CompareEvaluations(older, newer);
  EXPECT_THAT(text, HasSubstr("\n  cut off         -"));
  EXPECT_THAT(text, HasSubstr("12.5 % [0.0, 25.0]\n  repeating       -"));
  EXPECT_THAT(text, HasSubstr("25.0 % [12.5, 37.5]\n"));
}

TEST(CompareEvaluationsTest, SharesOfDifferentTextsAreNotCompared) {
  const std::string text = CompareEvaluations(Report("a\n"), Report("b"));
  EXPECT_THAT(text,
              HasSubstr("with \"a\\n\"   25.0 % [12.5, 37.5]        -\n"));
  EXPECT_THAT(text, HasSubstr("with \"b\"        -                   "));
  EXPECT_THAT(CompareEvaluations(Report(""), Report("b")),
              HasSubstr("with \"b\"        -                   "));
}

TEST(CompareEvaluationsTest, ColumnsStandBelowEachOther) {
  EvaluationReport report = Report("");
  report.format_rate = {1.0, 0.95, 1.0};
  EXPECT_THAT(
      CompareEvaluations(report, report),
      StartsWith("  held out    before                  after\n"
                 "  accuracy     50.0 % [40.0, 60.0]     50.0 % [40.0, 60.0]\n"
                 "  format rate 100.0 % [95.0, 100.0]   "
                 "100.0 % [95.0, 100.0]\n"));
}

TEST(CompareEvaluationsTest, TermsHaveTheOrderOfTheNewerOne) {
  EvaluationReport before = Report("");
  before.divergences = {{"first", {}}, {"second", {}}};
  EvaluationReport after = Report("");
  after.divergences = {{"second", {}}, {"first", {}}};
  const std::string text = CompareEvaluations(before, after);
  EXPECT_LT(text.find("true KL second"), text.find("true KL first"));
}

TEST(CompareEvaluationsTest, OneThatThereIsNotHasADashEverywhere) {
  const std::string text = CompareEvaluations(std::nullopt, Report(""));
  EXPECT_THAT(text, HasSubstr("\n  accuracy        -"));
  EXPECT_THAT(text, HasSubstr("50.0 % [40.0, 60.0]\n"));
  EXPECT_THAT(text, HasSubstr("\n  format rate     -"));
  EvaluationReport before = Report("");
  before.repeated = Interval{0.25, 0.125, 0.375};
  const std::string alone = CompareEvaluations(before, std::nullopt);
  EXPECT_THAT(alone,
              HasSubstr("\n  accuracy     50.0 % [40.0, 60.0]        -\n"));
  EXPECT_THAT(alone,
              HasSubstr("\n  repeating    25.0 % [12.5, 37.5]        -\n"));
}

TEST(ReadEvaluationsTest, OnlyThoseThatMeasuredTheSameAreComparable) {
  const std::string folder = TempPath("run");
  ASSERT_TRUE(MakeDirectories(folder + "/evaluation").ok());
  for (const int64_t step : {2, 4, 6}) {
    EvaluationReport report = Report("");
    report.policy_version = step;
    report.held_out_digest = step == 2 ? "others" : "these";
    ASSERT_TRUE(
        WriteEvaluationReport(
            absl::StrCat(folder, "/evaluation/", NameWithinRun(step), ".json"),
            report)
            .ok());
  }
  for (const char* name : {"mine.json", "before.txt"}) {
    ASSERT_TRUE(WriteEvaluationReport(
                    absl::StrCat(folder, "/evaluation/", name), Report(""))
                    .ok());
  }
  EXPECT_EQ(ReadEvaluationReports(folder)->size(), 3u);
  const auto comparable = ReadComparableEvaluations(folder);
  ASSERT_TRUE(comparable.ok()) << comparable.status();
  ASSERT_EQ(comparable->size(), 2u);
  EXPECT_EQ(comparable->front().first, "step-000004");
}

// evaluation.kl_problems may change when a run goes on.
TEST(CompareEvaluationsTest, ADivergenceThatOneOfThemLacksHasADash) {
  EvaluationReport with = Report("");
  with.divergences = {{"privileged_rollout", {0.5, 0.25, 0.75}},
                      {"reverse", {1.0, 1.0, 1.0}}};
  EXPECT_THAT(CompareEvaluations(with, Report("")),
              HasSubstr("true KL privileged_rollout    0.5000 [0.2500, 0.7500]"
                        "   -\n"));
  EXPECT_THAT(CompareEvaluations(Report(""), with),
              HasSubstr("true KL reverse               -                      "
                        "   1.0000 [1.0000, 1.0000]\n"));
  EXPECT_THAT(CompareEvaluations(with, with),
              HasSubstr("0.5000 [0.2500, 0.7500]   0.5000 [0.2500, 0.7500]\n"));
}

TEST(CompareEvaluationsTest, ASmallDivergenceIsNotRoundedAway) {
  EvaluationReport report = Report("");
  report.divergences = {{"purified_opsd", {0.000041234, 0.0000312, 0.000052}}};
  EXPECT_THAT(CompareEvaluations(report, report),
              HasSubstr("4.123e-05 [3.12e-05, 5.2e-05]   4.123e-05 "));
}

}  // namespace
}  // namespace dapd
