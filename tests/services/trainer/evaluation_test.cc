#include "services/trainer/evaluation.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "services/trainer/record/evaluation_report.h"
#include "tests/services/trainer/trainer_loop_fixture.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

using EvaluationTest = TrainerLoopTest;

TEST_F(EvaluationTest, HeldOutProblemsAreAnsweredByTheLivePolicy) {
  held_out_.problems = {data_.problems[0]};
  loaded_.config.evaluation.kl_problems = 0;
  for (const int64_t max_staleness : {0, 1}) {
    loaded_.config.run.name = absl::StrCat("lag-", max_staleness);
    ASSERT_TRUE(Run(max_staleness).ok());
    EXPECT_THAT(rollouts_->held_out_submissions_,
                ElementsAre(Submission{0, 0}, Submission{4, 4}));
  }
}

// With a lag, the step after an evaluation begins after it, but with the same
// policy as without the evaluation.
TEST_F(EvaluationTest, EvaluationsWithinTheRunChangeNothingOfIt) {
  Config& config = EvaluateEvery(0);
  for (const int64_t max_staleness : {0, 1}) {
    std::vector<std::vector<double>> losses;
    std::vector<std::vector<int64_t>> served;
    for (const int64_t interval : {0, 2}) {
      config.evaluation.interval = interval;
      config.run.name = absl::StrCat("within-", max_staleness, interval);
      ASSERT_TRUE(Run(max_staleness).ok());
      losses.push_back(MetricOfSteps("loss"));
      served.emplace_back();
      for (const auto& [step, submissions] : rollouts_->submissions_) {
        for (const Submission& each : submissions) {
          served.back().push_back(each.served);
        }
      }
    }
    EXPECT_THAT(
        rollouts_->held_out_submissions_,
        ElementsAre(Submission{0, 0}, Submission{2, 2}, Submission{4, 4}));
    EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
    EXPECT_EQ(served[0], served[1]);
  }
}

TEST_F(EvaluationTest, AnEvaluationThatWasRecordedIsNotRepeated) {
  Config& config = EvaluateEvery(1);
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(rollouts_->held_out_submissions_,
              ElementsAre(Submission{0, 0},
                          Submission{1, 1},
                          Submission{2, 2},
                          Submission{3, 3},
                          Submission{4, 4}));
  const std::string run = JoinPath(folder_, config.run.name);
  EXPECT_TRUE(FileExists(run + "/evaluation/step-000003.json"));
  // The report now names another adapter than the adapter of this step.
  std::string report =
      ReadFile(run + "/evaluation/step-000002.json", 1 << 20).value();
  const std::string key = "\"adapter_digest\": \"";
  report.replace(report.find(key) + key.size(), 4, "xxxx");
  ASSERT_TRUE(
      WriteFileAtomically(run + "/evaluation/step-000002.json", report).ok());
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(rollouts_->held_out_submissions_,
              ElementsAre(Submission{2, 2}, Submission{4, 4}));
}

TEST_F(EvaluationTest, HeldOutAnswersStandBeforeAndAfter) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.samples = 2;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.step > 0 && key.sample == 0 ? "123" : "5");
  };
  const auto check = [this] {
    EXPECT_EQ(shown_.before, 0);
    EXPECT_EQ(shown_.after, 4);
    ASSERT_EQ(shown_.held_out.size(), 2u);
    EXPECT_EQ(shown_.held_out[0].before->id, "a");
    EXPECT_EQ(shown_.held_out[1].before->id, "c");
    for (const AnswerPair& pair : shown_.held_out) {
      EXPECT_EQ(pair.before->grade, AnswerGrade::kWrong);
      EXPECT_EQ(pair.before->extracted, "5");
      EXPECT_EQ(pair.after->grade, AnswerGrade::kRight);
    }
  };
  ASSERT_TRUE(Run(0).ok());
  check();
  // The next attempt reads the earlier evaluations from the folder.
  answer_of_ = [this](const SamplingKey&) { return Boxed("123"); };
  ASSERT_TRUE(Run(0).ok());
  check();
}

TEST_F(EvaluationTest, AccuracyIsOfTheProblemsWithAnExpectedAnswer) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  held_out_.problems[1].answer.clear();
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.path = "held_out.jsonl";
  config.evaluation.interval = 2;
  answer_ = Boxed("123");
  const auto report_after = [&] {
    return ReadEvaluationReport(JoinPath(
        folder_, absl::StrCat(config.run.name, "/evaluation/after.json")));
  };
  ASSERT_TRUE(Run(0).ok());
  auto report = report_after();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->problems, 2);
  EXPECT_EQ(report->graded_problems, 1);
  ASSERT_TRUE(report->accuracy.has_value());
  EXPECT_EQ(report->accuracy->mean, 1.0);
  EXPECT_EQ(report->format_rate.mean, 1.0);
  EXPECT_EQ(report->answers[1].grade, AnswerGrade::kUngraded);

  config.run.name = "ungraded";
  held_out_.problems[0].answer.clear();
  ASSERT_TRUE(Run(0).ok());
  report = report_after();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->graded_problems, 0);
  EXPECT_FALSE(report->accuracy.has_value());
  EXPECT_EQ(report->format_rate.mean, 1.0);
  EXPECT_FALSE(FileExists(JoinPath(folder_, "ungraded/adapter-best")))
      << "nothing says which is the best";
}

TEST_F(EvaluationTest, AMarkersShareIsOneOfAnswersByProblem) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.samples = 2;
  config.evaluation.marker = "12";
  // The marker is in both answers to the first problem and in one answer to the
  // second.
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.example == 1 && key.sample == 1 ? "5" : "123");
  };
  ASSERT_TRUE(Run(0).ok());
  const std::string run = JoinPath(folder_, config.run.name);
  for (const char* when : {"before", "after"}) {
    const auto report =
        ReadEvaluationReport(absl::StrCat(run, "/evaluation/", when, ".json"));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->marker, "12");
    ASSERT_TRUE(report->marker_rate.has_value());
    EXPECT_DOUBLE_EQ(report->marker_rate->mean, 0.75);
    // A quarter of the resamples draw the second problem twice.
    EXPECT_DOUBLE_EQ(report->marker_rate->low, 0.5) << "two problems, not four";
    EXPECT_DOUBLE_EQ(report->marker_rate->high, 1.0)
        << "shares do not exceed 1";
  }
}

TEST_F(EvaluationTest, AnswersThatEndInALoopAreCounted) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.samples = 2;
  // One of the four answers repeats itself before its end token.
  const uint64_t of_held_out = config.run.seed + 1;
  answer_of_ = [this, of_held_out](const SamplingKey& key) {
    std::vector<int32_t> answer = Boxed("123");
    if (key.seed == of_held_out && key.example == 0 && key.sample == 0) {
      answer.insert(answer.begin(), 80, answer.front());
      answer.erase(answer.begin() + 80, answer.end() - 1);
    }
    return answer;
  };
  ASSERT_TRUE(Run(0).ok());
  const auto report = ReadEvaluationReport(JoinPath(
      folder_, absl::StrCat(config.run.name, "/evaluation/before.json")));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->repeated.has_value() && report->truncated.has_value());
  EXPECT_DOUBLE_EQ(report->repeated->mean, 0.25);
  EXPECT_DOUBLE_EQ(report->repeated->low, 0.0);
  EXPECT_DOUBLE_EQ(report->repeated->high, 0.5);
  EXPECT_EQ(report->truncated->mean, 0.0);
}

TEST(HeldOutDigestTest, AllThatMakesAnswersOthersCounts) {
  Dataset held_out;
  held_out.problems.resize(1);
  held_out.digest = "these";
  const Config config;
  const std::string digest = HeldOutDigest(config, held_out);
  const auto changed = [&](auto EvaluationSection::*key, auto value) {
    Config other = config;
    other.evaluation.*key = value;
    return HeldOutDigest(other, held_out) != digest;
  };
  using Section = EvaluationSection;
  EXPECT_TRUE(changed(&Section::prompt, EvaluationForm::kPlain));
  EXPECT_TRUE(changed(&Section::thinking, !config.evaluation.thinking));
  EXPECT_TRUE(changed(&Section::samples, config.evaluation.samples + 1));
  EXPECT_TRUE(changed(&Section::temperature, 0.123));
  EXPECT_TRUE(changed(&Section::top_p, 0.123));
  EXPECT_TRUE(changed(&Section::top_k, 123));
  EXPECT_TRUE(changed(&Section::max_new_tokens, 123));
  EXPECT_FALSE(changed(&Section::marker, "so"));
  EXPECT_FALSE(changed(&Section::claims, true));
  EXPECT_FALSE(changed(&Section::interval, 123));
  EXPECT_FALSE(changed(&Section::kl_problems, 123));
  held_out.digest = "others";
  EXPECT_NE(HeldOutDigest(config, held_out), digest);
}

// Workers refuse prompts longer than the context, and a refusal ends the run.
TEST_F(EvaluationTest, DivergencesLeaveOutWhatTheContextDoesNotTake) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 2;
  config.evaluation.max_new_tokens = 400;
  size_t longest = 0;  // view with an answer of the usual length
  for (const Problem& problem : data_.problems) {
    const Views views =
        text_.views
            ->Build(
                {problem.id, problem.problem, problem.solution, Boxed("123")})
            .value();
    for (const View& view : views) {
      longest = std::max(longest, view.input_ids.size());
    }
  }
  context_ = static_cast<int64_t>(longest);
  const uint64_t of_held_out = config.run.seed + 1;
  answer_of_ = [this, of_held_out](const SamplingKey& key) {
    std::vector<int32_t> answer = Boxed("123");
    if (key.seed == of_held_out && key.example == 0) {
      answer.insert(answer.begin(), 380, answer.front());
    }
    return answer;
  };
  const auto divergences = [&] {
    const auto report = ReadEvaluationReport(JoinPath(
        folder_, absl::StrCat(config.run.name, "/evaluation/before.json")));
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->divergences.size() : 0;
  };
  config.run.name = "one-fits";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_LE(teachers_->longest_view_, longest);
  EXPECT_EQ(rollouts_->held_out_submissions_.size(), 8u)
      << "two problems, twice in each of two evaluations";
  EXPECT_GT(divergences(), 0u);

  config.run.name = "none-can-be-answered";
  config.evaluation.max_new_tokens = context_;
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->held_out_submissions_.size(), 4u)
      << "those that are graded";
  EXPECT_EQ(divergences(), 0u);
}

TEST_F(EvaluationTest, ClaimsAreMeasuredInNoneAndWhereATermReadsItInCross) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 2;
  config.evaluation.claims = true;
  answer_ = text_.tokenizer->Encode("So. the 12").value();
  const std::vector<int32_t> tokens = answer_;
  answer_.push_back(kSmallEndId);
  is_stopped_ = false;  // sft, which waits for nobody, would stop at once
  // The steps of the last preset sample no answers.
  for (const char* preset : {"dapd", "opd", "sft"}) {
    config.run.name = preset;
    config.objective.preset = preset;
    ASSERT_TRUE(Run(0).ok());
    const auto report = ReadEvaluationReport(JoinPath(
        folder_, absl::StrCat(config.run.name, "/evaluation/after.json")));
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->claims.has_value()) << preset;
    const ClaimFigures& claims = *report->claims;
    EXPECT_EQ(claims.problems, 2);
    EXPECT_GT(claims.none.mean, 0.0);
    EXPECT_LT(claims.none.mean, 1e-6) << "the model knows no word";
    EXPECT_EQ(claims.cross.has_value(), preset == std::string("dapd"));
    ASSERT_EQ(claims.answers.size(), 2u);
    EXPECT_EQ(claims.answers[0].id, "a");
    EXPECT_EQ(claims.answers[0].tokens, tokens);
    EXPECT_THAT(claims.answers[0].places, ElementsAre(0, 3));
    EXPECT_DOUBLE_EQ(claims.none.mean,
                     (claims.answers[0].none + claims.answers[1].none) / 2);
  }
}

TEST_F(EvaluationTest, AnAnswerWithoutRoomForAClaimIsLeftOut) {
  held_out_.problems = {data_.problems[0]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 1;
  config.evaluation.claims = true;
  config.objective.preset = "opd";
  const Problem& problem = held_out_.problems[0];
  const Views views =
      text_.views
          ->Build({problem.id, problem.problem, problem.solution, answer_})
          .value();
  const View& none = views[static_cast<size_t>(ViewName::kNoneRollout)];
  // An opening takes more.
  context_ = static_cast<int64_t>(none.input_ids.size()) + 9;
  ASSERT_TRUE(Run(0).ok());
  const auto report = ReadEvaluationReport(JoinPath(
      folder_, absl::StrCat(config.run.name, "/evaluation/after.json")));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->divergences.size(), 1u);
  EXPECT_FALSE(report->claims.has_value());
}

// The fake teachers give the same scores with all weights, as with a fresh
// adapter. So every token belongs to the first pass's term, and the other
// regimes' term is exactly 0.
TEST_F(EvaluationTest, ADivergenceOfNothingIsNoShareAndOneOfNoTokenIsUnknown) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 2;
  config.objective.preset = "dopd";
  const auto divergences = [&] {
    const auto report = ReadEvaluationReport(JoinPath(
        folder_, absl::StrCat(config.run.name, "/evaluation/before.json")));
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->divergences : std::vector<TermDivergence>();
  };
  ASSERT_TRUE(Run(0).ok());
  const std::vector<TermDivergence> both = divergences();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].name, "dopd_reverse");
  EXPECT_EQ(both[0].unclipped.mean, 0.0);
  EXPECT_EQ(both[0].unclipped.high, 0.0);
  EXPECT_GT(both[1].unclipped.mean, 0.0);
  EXPECT_EQ(both[1].problems, 2);

  config.run.name = "skipping";
  config.objective.skip_tokens = static_cast<int64_t>(answer_.size());
  ASSERT_TRUE(Run(0).ok());
  EXPECT_TRUE(divergences().empty());
}

// Figures on other problems cannot be compared with the new figures.
TEST_F(EvaluationTest, OtherProblemsAreEvaluatedAnew) {
  Config& config = EvaluateEvery(2);
  held_out_.digest = "first";
  ASSERT_TRUE(Run(0).ok());
  const auto all =
      ElementsAre(Submission{0, 0}, Submission{2, 2}, Submission{4, 4});
  held_out_.digest = "second";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(rollouts_->held_out_submissions_, all);
  config.evaluation.temperature = 0.5;
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(rollouts_->held_out_submissions_, all);
  config.evaluation.marker = "12";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(rollouts_->held_out_submissions_, ElementsAre(Submission{4, 4}));
}

}  // namespace
}  // namespace dapd
