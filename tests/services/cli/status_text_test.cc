#include "services/cli/status_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::GetStatusResponse MakeStatus() {
  v1::GetStatusResponse status;
  status.set_run_name("demo");
  status.set_run_folder("runs/demo");
  status.set_phase("scoring");
  status.set_step(7);
  status.set_total_steps(20);
  status.set_adapter_digest("0123456789abcdef");
  status.set_seconds_per_step(2.5);
  status.set_eta_seconds(90);
  status.set_loss(0.125);
  v1::TermStatus& term = *status.add_terms();
  term.set_name("entangled_rollout");
  term.set_value(0.0000125);
  term.set_clipped_fraction(0.25);
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_role("rollout");
  worker.set_address("127.0.0.1:7001");
  worker.set_state("lost");
  worker.set_policy_version(-1);
  worker.set_last_error("connection refused");
  return status;
}

TEST(StatusTextTest, EachNumberStandsAtItsPlace) {
  v1::GetStatusResponse status = MakeStatus();
  status.set_elapsed_seconds(61.25);
  status.set_phase_done(3);
  status.set_phase_total(8);
  status.set_trained_ahead(2);
  status.set_snapshot_step(6);
  status.set_gradient_norm(0.5);
  status.set_max_gradient_norm(0.25);
  status.set_learning_rate(0.001);
  status.set_mean_rollout_tokens(31.5);
  status.set_max_rollout_tokens(64);
  status.set_generated_tokens_per_second(100.5);
  status.set_scored_tokens_per_second(200.5);
  status.set_samples_per_second(1.5);
  status.mutable_terms(0)->set_weight(0.125);
  v1::WorkerStatus& teacher = *status.add_workers();
  teacher.set_role("teacher");
  teacher.set_address("127.0.0.1:7002");
  teacher.set_state("ready");
  teacher.set_policy_version(4);
  teacher.set_in_flight(2);
  teacher.set_last_error("timed out");
  EXPECT_EQ(
      StatusText(status),
      "run       demo (runs/demo), for 1m1.2s\n"
      "phase     scoring, 3 of 8, 2 micro-batches trained\n"
      "step      7 of 20, 2.5s a step, 1m30s left\n"
      "policy    version 7, digest 0123456789ab, snapshot of step 6\n"
      "loss      0.125   gradient norm 0.5 (clipped at 0.25)   learning rate "
      "0.001\n"
      "rollouts  31.5 tokens on average, at most 64\n"
      "speed     100.5 generated and 200.5 scored tokens/s, 1.5 samples/s\n"
      "term      entangled_rollout        1.25e-05  weight 0.1250  clipped "
      "25.0%\n"
      "rollout   127.0.0.1:7001         lost       no policy, 0 in flight: "
      "connection refused\n"
      "teacher   127.0.0.1:7002         ready      policy 4, 2 in flight; was "
      "lost: timed out\n");
}

TEST(StatusTextTest, TheTeachersOfATermStandBelowIt) {
  v1::GetStatusResponse status = MakeStatus();
  v1::TeacherDivergence& teacher = *status.mutable_terms(0)->add_teachers();
  teacher.set_name("math");
  teacher.set_unclipped(0.25);
  teacher.set_tokens(120);
  EXPECT_THAT(StatusText(status),
              HasSubstr("clipped 25.0%\n"
                        "          from math                    0.25  "
                        "unclipped, 120 tokens\n"));
}

TEST(StatusTextTest, ATeacherOfSeveralSetsShowsEachVersion) {
  v1::GetStatusResponse status = MakeStatus();
  v1::WorkerStatus& teacher = *status.add_workers();
  teacher.set_state("ready");
  teacher.set_policy_version(7);
  for (const auto& [set, version] : {std::pair{"snapshot", 4}, {"ema", 7}}) {
    v1::WeightVersion& weights = *teacher.add_weights();
    weights.set_set(set);
    weights.set_version(version);
  }
  EXPECT_THAT(StatusText(status), HasSubstr("snapshot 4, ema 7"));
}

TEST(StatusTextTest, ARunThatGoesOnHasNoRateBeforeItsFirstStep) {
  v1::GetStatusResponse status = MakeStatus();
  status.set_seconds_per_step(0);
  status.set_eta_seconds(0);
  EXPECT_THAT(StatusText(status), HasSubstr("\nstep      7 of 20\n"));
}

TEST(StatusTextTest, NoTimeHasAUnitToo) {
  v1::GetStatusResponse status = MakeStatus();
  status.set_eta_seconds(0);
  EXPECT_THAT(StatusText(status), HasSubstr(" a step, 0s left\n"));
  status.set_seconds_per_step(0.0627);
  EXPECT_THAT(StatusText(status), HasSubstr(", 62ms a step, "));
}

TEST(StatusTextTest, AnEmptyStatusHasNoDigest) {
  EXPECT_THAT(StatusText({}), HasSubstr("(none)"));
}

TEST(StatusTextTest, BeforeTheFirstStepNothingIsMeasured) {
  v1::GetStatusResponse status = MakeStatus();
  EXPECT_THAT(StatusText(status), HasSubstr("\nloss  "));
  status.set_step(0);
  for (const char* line : {"\nloss", "\nrollouts", "\nspeed"}) {
    EXPECT_THAT(StatusText(status), Not(HasSubstr(line)));
  }
}

TEST(StatusTextTest, APhaseThatIsCountedSaysHowFarItIs) {
  v1::GetStatusResponse status = MakeStatus();
  status.set_phase_done(3);
  status.set_phase_total(8);
  EXPECT_THAT(StatusText(status), HasSubstr("scoring, 3 of 8\n"));
}

TEST(StatusTextTest, TheSamplersMismatchIsShownOnceItIsMeasured) {
  v1::GetStatusResponse status = MakeStatus();
  EXPECT_THAT(StatusText(status), Not(HasSubstr("sampler ")));
  status.set_sampler_mismatch_tokens(7);
  status.set_sampler_mismatch_mean(0.0125);
  status.set_sampler_mismatch_max(0.5);
  EXPECT_THAT(StatusText(status),
              HasSubstr("by 0.013 on average, at most 0.5\n"));
}

TEST(StatusTextTest, WarningsAreShownOnALineEach) {
  v1::GetStatusResponse status = MakeStatus();
  EXPECT_THAT(StatusText(status), Not(HasSubstr("warning")));
  status.add_warnings()->set_text("the clip hides\nsomething");
  EXPECT_THAT(StatusText(status),
              HasSubstr("\nwarning   the clip hides\\nsomething\n"));
}

TEST(StatusTextTest, EvaluationsAreShownWithTheirIntervals) {
  v1::GetStatusResponse status = MakeStatus();
  v1::EvaluationStatus& evaluation = *status.add_evaluations();
  evaluation.set_when("before");
  evaluation.mutable_accuracy()->set_mean(0.5);
  evaluation.mutable_accuracy()->set_low(0.4);
  evaluation.mutable_accuracy()->set_high(0.6);
  evaluation.mutable_format_rate()->set_mean(0.75);
  evaluation.mutable_format_rate()->set_high(1);
  evaluation.set_mean_tokens(12);
  evaluation.set_problems(8);
  evaluation.set_samples(4);
  EXPECT_THAT(
      StatusText(status),
      HasSubstr("\nheld out  before  accuracy 50.0% [40.0, 60.0], format rate "
                "75.0% [0.0, 100.0], 12 tokens (8 problems x 4)\n"));
  evaluation.mutable_truncated()->set_mean(0.25);
  evaluation.mutable_repeated()->set_high(0.5);
  EXPECT_THAT(StatusText(status),
              HasSubstr(", 12 tokens, cut off 25.0% [0.0, 0.0], repeating 0.0% "
                        "[0.0, 50.0] (8 problems x 4)\n"));
}

TEST(StatusTextTest, AccuracySaysHowManyProblemsItIsOf) {
  v1::GetStatusResponse status = MakeStatus();
  v1::EvaluationStatus& evaluation = *status.add_evaluations();
  evaluation.set_problems(8);
  EXPECT_THAT(StatusText(status), HasSubstr("no accuracy (no problem has"));
  evaluation.mutable_accuracy()->set_mean(0.5);
  EXPECT_THAT(StatusText(status), HasSubstr("[0.0, 0.0], format"))
      << "an older trainer does not count them";
  evaluation.set_graded_problems(8);
  EXPECT_THAT(StatusText(status), HasSubstr("[0.0, 0.0], format"));
  evaluation.set_graded_problems(3);
  EXPECT_THAT(StatusText(status),
              HasSubstr("[0.0, 0.0] of the 3 problems with an answer, format"));
}

TEST(StatusTextTest, EvaluationsThatAreNotListedAreCounted) {
  v1::GetStatusResponse status = MakeStatus();
  status.clear_evaluations();
  status.add_evaluations()->set_when("step-000050");
  // Trainers of an earlier version do not count them.
  EXPECT_THAT(StatusText(status), Not(HasSubstr("earlier evaluations")));
  status.set_evaluation_count(1);
  EXPECT_THAT(StatusText(status), Not(HasSubstr("earlier evaluations")));
  status.set_evaluation_count(25);
  EXPECT_THAT(StatusText(status), HasSubstr("and 24 earlier evaluations"));
}

TEST(StatusTextTest, TheMarkersShareIsShownByItsEscapedText) {
  v1::GetStatusResponse status = MakeStatus();
  v1::EvaluationStatus& evaluation = *status.add_evaluations();
  evaluation.set_marker("\x1b= " + std::string(99, 'x'));
  evaluation.mutable_marker_rate()->set_mean(0.25);
  evaluation.mutable_marker_rate()->set_high(0.5);
  EXPECT_THAT(StatusText(status),
              HasSubstr("], with \"\\x1b= xxxxxxxxxxxxxxxxxxxxx...\" 25.0% "
                        "[0.0, 50.0], 0 tokens"));
}

TEST(StatusTextTest, ClaimsHaveDigitsHoweverRareTheyAre) {
  v1::GetStatusResponse status = MakeStatus();
  EXPECT_THAT(StatusText(status), Not(HasSubstr("claims")));
  v1::EvaluationStatus& evaluation = *status.add_evaluations();
  evaluation.mutable_claims_none()->set_mean(0.0000123);
  evaluation.mutable_claims_none()->set_high(0.0000456);
  EXPECT_THAT(StatusText(status),
              HasSubstr(", claims None 1.23e-05 [0, 4.56e-05] ("));
  evaluation.mutable_claims_cross()->set_mean(0.5);
  EXPECT_THAT(StatusText(status), HasSubstr(", claims Cross 0.5 [0, 0] ("));
}

TEST(StatusTextTest, TextOfThePeerIsEscaped) {
  v1::GetStatusResponse status = MakeStatus();
  status.set_run_name("x\nstep 99\x1b[2J");
  status.mutable_workers(0)->set_last_error("a\r\xc2\x9b");
  EXPECT_THAT(StatusText(status), HasSubstr("x\\nstep 99\\x1b[2J"));
  EXPECT_THAT(StatusText(status), HasSubstr("a\\r\\u009b"));
}

}  // namespace
}  // namespace dapd
