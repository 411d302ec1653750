#include "common/training/clip_watch.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/kernels/divergence_entry.h"
#include "common/training/metric_table.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

Term MakeTerm(const std::string& name,
              double clip = 0.05,
              WeightSet weights = WeightSet::kBase) {
  Term term;
  term.name = name;
  term.target = TeacherPass{weights, ViewName::kCrossRollout};
  term.divergence.clip = clip;
  term.weight = 1.0;
  return term;
}

StepReport MakeReport(int64_t step,
                      double value,
                      double unclipped,
                      const std::string& name = "a") {
  StepReport report;
  report.step = step;
  report.objective.terms = {{.name = name,
                             .value = value,
                             .unclipped = unclipped,
                             .weight = 1.0,
                             .tokens = 9}};
  return report;
}

std::vector<double> Softmax(const std::vector<double>& logits) {
  double sum = 0.0;
  for (const double logit : logits) sum += std::exp(logit);
  std::vector<double> shares;
  for (const double logit : logits) shares.push_back(std::exp(logit) / sum);
  return shares;
}

// A student with its own logits at each of 64 positions learns by gradient
// descent from a teacher that is sure of one token at each position. Each step
// uses half of the positions.
class Student {
 public:
  // `behind` is how far the student's logit of the teacher's token is below the
  // teacher's logit; `noise` is the standard deviation of all differences.
  Student(double clip, double behind, double noise) : clip_(clip) {
    std::normal_distribution<double> normal;
    for (int i = 0; i < 64; ++i) {
      std::vector<double> teacher;
      std::vector<double> student;
      for (int v = 0; v < 32; ++v) {
        teacher.push_back(v == 0 ? 6.0 + 0.7 * normal(random_)
                                 : normal(random_));
        student.push_back(teacher[v] + noise * normal(random_));
      }
      student[0] -= behind;
      targets_.push_back(Softmax(teacher));
      logits_.push_back(student);
    }
  }

  StepReport Step(int64_t step, double rate) {
    double value = 0.0;
    double unclipped = 0.0;
    int64_t tokens = 0;
    std::bernoulli_distribution is_scored(0.5);
    for (size_t i = 0; i < logits_.size(); ++i) {
      if (!is_scored(random_)) continue;
      ++tokens;
      const std::vector<double> p = Softmax(logits_[i]);
      std::vector<double> pulls;
      double sum_of_pulls = 0.0;
      for (size_t v = 0; v < p.size(); ++v) {
        const double q = targets_[i][v];
        const auto entry = EntryOf<DivergenceKind::kForwardKl>(
            q, p[v], std::log(q / p[v]), 0.5, clip_, NoMath());
        value += entry.clipped;
        unclipped += entry.component;
        pulls.push_back(entry.pull);
        sum_of_pulls += entry.pull;
      }
      for (size_t v = 0; v < p.size(); ++v) {
        logits_[i][v] -=
            rate * LogitGradient(p[v], sum_of_pulls, pulls[v], 1.0);
      }
    }
    return MakeReport(step,
                      value / static_cast<double>(tokens),
                      unclipped / static_cast<double>(tokens));
  }

 private:
  struct NoMath {};  // EntryOf<kForwardKl> calls no function of it

  const double clip_;
  std::mt19937 random_{7};
  std::vector<std::vector<double>> targets_;
  std::vector<std::vector<double>> logits_;
};

TEST(ClipWatchTest, TellsThatTheClipDrivesAStudentAwayFromItsTeacher) {
  Student student(0.05, /*behind=*/1.5, /*noise=*/0.3);
  ClipWatch watch({MakeTerm("a")});
  std::vector<ClipFinding> told;
  for (int64_t step = 1; step <= 60; ++step) {
    StepReport report = student.Step(step, /*rate=*/2.0);
    for (const ClipFinding& finding : watch.Add(&report)) {
      EXPECT_TRUE(*report.objective.terms[0].clip_hides);
      EXPECT_EQ(finding.step, step);
      if (!told.empty()) {
        EXPECT_GE(step, told.back().step + told.back().window)
            << "once a window";
      }
      told.push_back(finding);
    }
  }
  ASSERT_THAT(told, Not(IsEmpty()));
  EXPECT_EQ(told[0].term, "a");
  EXPECT_EQ(told[0].clip, 0.05);
  EXPECT_LT(told[0].value_after, told[0].value_before);
  EXPECT_LT(told[0].value_after, 0.0);
  EXPECT_GT(told[0].unclipped_after, 1.5 * told[0].unclipped_before);
  EXPECT_THAT(watch.Findings(), SizeIs(1));
  EXPECT_THAT(Describe(told[0]),
              AllOf(HasSubstr("that a gets worse"),
                    HasSubstr("the clip, 0.05,"),
                    HasSubstr("Lower trainer.learning_rate"),
                    HasSubstr("objective.component_clip")));
}

TEST(ClipWatchTest, IsQuietWhereTheClipHoldsNothingUp) {
  Student student(0.05, /*behind=*/0.0, /*noise=*/0.05);
  ClipWatch watch({MakeTerm("a")});
  for (int64_t step = 1; step <= 100; ++step) {
    StepReport report = student.Step(step, /*rate=*/0.2);
    EXPECT_THAT(watch.Add(&report), IsEmpty());
    EXPECT_FALSE(*report.objective.terms[0].clip_hides);
  }
  EXPECT_THAT(watch.Findings(), IsEmpty());
}

// Harder batches have a higher divergence and a lower value: no noise is worse
// for the rule.
TEST(ClipWatchTest, IsQuietAboutNoiseThatPullsTheTwoApart) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (const double shared : {0.0, 0.95}) {
    const double own = std::sqrt(1.0 - shared * shared);
    for (int run = 0; run < 50; ++run) {
      ClipWatch watch({MakeTerm("a")});
      for (int64_t step = 1; step <= 200; ++step) {
        const double hardness = normal(random);
        StepReport report =
            MakeReport(step,
                       0.1 - 0.02 * hardness,
                       0.5 + 0.1 * (shared * hardness + own * normal(random)));
        EXPECT_THAT(watch.Add(&report), IsEmpty())
            << "run " << run << ", step " << step;
      }
    }
  }
}

// Returns whether ClipWatch finds 20 steps with a rising divergence and with a
// value that falls by `slope` a step, plus `residuals`.
bool IsFound(double slope, const std::function<double(int64_t)>& residuals) {
  ClipWatch watch({MakeTerm("a")});
  bool is_found = false;
  for (int64_t step = 1; step <= 20; ++step) {
    const auto at = static_cast<double>(step);
    StepReport report =
        MakeReport(step, 0.1 - slope * at + residuals(step), 0.5 + 0.01 * at);
    is_found = !watch.Add(&report).empty();
  }
  return is_found;
}

// Residuals of 1e-3 with alternating signs have a slope of 1.5e-5 themselves. A
// line leaves 18 degrees of freedom, so the standard error is 4.07e-5.
TEST(ClipWatchTest, ATrendIsMoreThanSixStandardErrors) {
  const auto up_and_down = [](int64_t step) {
    return step % 2 == 0 ? 1e-3 : -1e-3;
  };
  EXPECT_FALSE(IsFound(1.5e-5 + 5.85 * 4.07e-5, up_and_down));
  EXPECT_TRUE(IsFound(1.5e-5 + 6.15 * 4.07e-5, up_and_down));
}

// The signs alternate every four steps. The residuals' correlation of 0.55
// raises the standard error from 4.0e-5 to 7.4e-5.
TEST(ClipWatchTest, StepsThatResembleTheirNeighboursHaveToFallByMore) {
  const auto by_four = [](int64_t step) {
    return (step - 1) / 4 % 2 == 0 ? 1e-3 : -1e-3;
  };
  EXPECT_FALSE(IsFound(5.5 * 7.4e-5, by_four));
  EXPECT_TRUE(IsFound(6.5 * 7.4e-5, by_four));
}

// Returns a value and a divergence on straight lines, with a small deviation.
StepReport OnLines(int64_t step, double value_slope, double unclipped_slope) {
  const double little = step % 2 == 0 ? 1e-4 : -1e-4;
  const auto at = static_cast<double>(step);
  return MakeReport(step,
                    0.1 + value_slope * at + little,
                    0.5 + unclipped_slope * at + little);
}

TEST(ClipWatchTest, BothHaveToMoveAndTheDivergenceByMoreThanATrifle) {
  struct Case {
    double value_slope;
    double unclipped_slope;
    bool is_found;
  };
  for (const Case& each : {Case{-0.01, 0.01, true},
                           Case{-0.01, 0.0, false},
                           Case{0.0, 0.01, false},
                           Case{0.01, 0.01, false},
                           Case{-0.01, -0.01, false},
                           Case{0.01, -0.01, false},
                           Case{-0.01, 0.001, false}}) {
    ClipWatch watch({MakeTerm("a")});
    bool is_found = false;
    for (int64_t step = 1; step <= 20; ++step) {
      StepReport report = OnLines(step, each.value_slope, each.unclipped_slope);
      is_found = !watch.Add(&report).empty();
      EXPECT_TRUE(step == 20 || !is_found) << "before a window is full";
    }
    EXPECT_EQ(is_found, each.is_found)
        << each.value_slope << " " << each.unclipped_slope;
  }
}

TEST(ClipWatchTest, WhatNothingHidesIsNotWatched) {
  Term without_weight = MakeTerm("a");
  without_weight.weight = 0.0;
  for (const Term& term : {MakeTerm("a", kNoClip), without_weight}) {
    ClipWatch watch({term});
    for (int64_t step = 1; step <= 30; ++step) {
      StepReport report = OnLines(step, -0.01, 0.01);
      EXPECT_THAT(watch.Add(&report), IsEmpty());
      EXPECT_FALSE(report.objective.terms[0].clip_hides.has_value());
    }
  }
}

TEST(ClipWatchTest, StepsThatSayNothingOfATermAreLeftOut) {
  ClipWatch watch({MakeTerm("a")});
  int64_t step = 0;
  for (int i = 1; i <= 19; ++i) {
    StepReport report = OnLines(++step, -0.01, 0.01);
    EXPECT_THAT(watch.Add(&report), IsEmpty());
    StepReport unscored = MakeReport(++step, 0.0, 0.0);
    unscored.objective.terms[0].tokens = 0;
    EXPECT_THAT(watch.Add(&unscored), IsEmpty());
    StepReport broken =
        MakeReport(++step, 0.1, std::numeric_limits<double>::infinity());
    EXPECT_THAT(watch.Add(&broken), IsEmpty());
    StepReport other = MakeReport(++step, 0.1, 0.5, "another term");
    EXPECT_THAT(watch.Add(&other), IsEmpty());
  }
  StepReport last = OnLines(++step, -0.01, 0.01);
  EXPECT_THAT(watch.Add(&last), SizeIs(1));
}

// A report names the snapshot that its step has produced: the teacher of step
// 20 was the old snapshot.
TEST(ClipWatchTest, ARefreshedSnapshotBeginsTheWindowsOfItsTermsAnew) {
  ClipWatch watch(
      {MakeTerm("base"), MakeTerm("snapshot", 0.05, WeightSet::kSnapshot)});
  std::vector<std::pair<std::string, int64_t>> told;
  for (int64_t step = 1; step <= 40; ++step) {
    StepReport report = OnLines(step, -0.01, 0.01);
    report.objective.terms[0].name = "base";
    report.objective.terms.push_back(report.objective.terms[0]);
    report.objective.terms[1].name = "snapshot";
    // The first two stretches are short, the third is long.
    report.snapshot_version = step < 10 ? 0 : step < 20 ? 10 : 20;
    for (const ClipFinding& finding : watch.Add(&report)) {
      told.emplace_back(finding.term, finding.step);
    }
  }
  EXPECT_THAT(
      told,
      ElementsAre(Pair("base", 20), Pair("base", 40), Pair("snapshot", 40)));
}

TEST(ClipWatchTest, ARunThatGoesOnWarnsAsIfItHadNeverStopped) {
  const std::vector<Term> terms = {MakeTerm("a")};
  std::vector<StepReport> reports;
  std::vector<nlohmann::ordered_json> lines;
  std::vector<std::vector<std::string>> told;
  {
    Student student(0.05, /*behind=*/1.5, /*noise=*/0.3);
    ClipWatch watch(terms);
    for (int64_t step = 1; step <= 60; ++step) {
      StepReport report = student.Step(step, /*rate=*/2.0);
      report.snapshot_version = step / 25 * 25;
      told.emplace_back();
      for (const ClipFinding& finding : watch.Add(&report)) {
        told.back().push_back(Describe(finding));
      }
      // The line is parsed as a resumed run parses metrics.jsonl.
      lines.push_back(nlohmann::ordered_json::parse(StepLine(report).dump()));
      reports.push_back(report);
    }
  }
  for (size_t stop = 0; stop <= reports.size(); stop += 7) {
    ClipWatch watch(terms);
    for (size_t i = 0; i < stop; ++i) watch.Recall(lines[i]);
    for (size_t i = stop; i < reports.size(); ++i) {
      StepReport report = reports[i];
      std::vector<std::string> again;
      for (const ClipFinding& finding : watch.Add(&report)) {
        again.push_back(Describe(finding));
      }
      EXPECT_EQ(again, told[i]) << "step " << i + 1;
      EXPECT_EQ(report.objective.terms[0].clip_hides,
                reports[i].objective.terms[0].clip_hides);
    }
  }
}

TEST(ClipWatchTest, LinesThatLackATermOrItsNumbersAreRecalledAsFarAsTheyGo) {
  ClipWatch watch({MakeTerm("a")});
  watch.Recall({{"step", 1}});
  watch.Recall({{"step", 2}, {"terms", {{"b", {{"value", 1.0}}}}}});
  watch.Recall(nlohmann::ordered_json::parse(
      R"({"step": 3, "terms": {"a": {"value": null, "unclipped": null}}})"));
  EXPECT_THAT(watch.Findings(), IsEmpty());
  EXPECT_THROW(watch.Recall({{"step", 4}, {"terms", {{"a", 1}}}}),
               nlohmann::ordered_json::exception);
}

}  // namespace
}  // namespace dapd
