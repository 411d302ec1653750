#include "services/trainer/trainer_loop.h"

#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/config/run_folder.h"
#include "common/config/step_kind.h"
#include "common/data/text_pipeline.h"
#include "services/trainer/record/answer_log.h"
#include "tests/services/trainer/trainer_loop_fixture.h"

namespace dapd {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

TEST_F(TrainerLoopTest, EachStepIsSampledUnderThePolicyThatItTrains) {
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(
      rollouts_->submissions_,
      ElementsAre(Pair(1, ElementsAre(Submission{0, 0}, Submission{0, 0})),
                  Pair(2, ElementsAre(Submission{1, 1}, Submission{1, 1})),
                  Pair(3, ElementsAre(Submission{2, 2}, Submission{2, 2})),
                  Pair(4, ElementsAre(Submission{3, 3}, Submission{3, 3}))));
}

TEST_F(TrainerLoopTest,
       WithALagEachStepIsSubmittedBeforeTheOneBeforeIsTrained) {
  ASSERT_TRUE(Run(1).ok());
  EXPECT_THAT(
      rollouts_->submissions_,
      ElementsAre(Pair(1, ElementsAre(Submission{0, 0}, Submission{0, 0})),
                  Pair(2, ElementsAre(Submission{0, 0}, Submission{0, 0})),
                  Pair(3, ElementsAre(Submission{1, 1}, Submission{1, 1})),
                  Pair(4, ElementsAre(Submission{2, 2}, Submission{2, 2}))))
      << "and nothing behind the last step";
}

// Allows or forbids this process to write files; written files stay.
void AllowWriting(bool allowed) {
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = allowed ? limit.rlim_max : 0;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST_F(TrainerLoopTest, AStepThatIsStoppedBeforeItIsRecordedIsNotSaved) {
  ::signal(SIGXFSZ, SIG_IGN);  // EFBIG instead
  // The disk refuses the records of the first step. It accepts them again when
  // the run, which waits for the disk, is stopped.
  on_phase_ = [](TrainerPhase phase) {
    if (phase == TrainerPhase::kPublishing) AllowWriting(false);
  };
  on_wait_ = [] { AllowWriting(true); };
  EXPECT_TRUE(absl::IsCancelled(Run(0)));
  const RunFolder folder = RunFolder::Open(loaded_.config.run).value();
  const std::string ledger =
      ReadFile(folder.File("ledger.jsonl"), 1 << 20).value();
  EXPECT_THAT(ledger, HasSubstr("accepted"));
  EXPECT_THAT(ledger, Not(HasSubstr("checkpointed")))
      << "a checkpoint of a step that no record knows";
  EXPECT_FALSE(FileExists(folder.File("checkpoints/step-000001")));
}

TEST_F(TrainerLoopTest, ARunWithoutWorkersSavesItsLastWholeStep) {
  num_left_ = 3;  // of two a step
  EXPECT_TRUE(absl::IsUnavailable(Run(0)));
  EXPECT_TRUE(FileExists(
      JoinPath(FolderOf(loaded_.config.run), "checkpoints/step-000001")));
}

TEST_F(TrainerLoopTest, AStepThatCannotBeSavedAtTheEndIsWarnedOf) {
  const std::string adapter = JoinPath(FolderOf(loaded_.config.run),
                                       "adapter/adapter_model.safetensors");
  ASSERT_TRUE(MakeDirectories(adapter).ok());  // in the place of the file
  num_left_ = 3;                               // of two a step
  testing::internal::CaptureStderr();
  const absl::Status outcome = Run(0);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(absl::IsUnavailable(outcome)) << outcome;
  EXPECT_THAT(log, ContainsRegex("W .*step 1 could not be saved.*" + adapter))
      << log;
}

TEST_F(TrainerLoopTest, AnEvaluationThatTheDiskRefusesAtFirstIsToldOnce) {
  held_out_.problems = {data_.problems[0]};
  const std::string in_the_way = ObstructOnFirstAnswer(
      JoinPath(FolderOf(loaded_.config.run), "evaluation/before.json"));
  int waits = 0;
  on_wait_ = [&] {
    if (++waits == 3) std::filesystem::remove(in_the_way);
  };
  is_stopped_ = false;
  testing::internal::CaptureStderr();
  const absl::Status outcome = Run(0);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(waits, 3);
  const std::vector<std::string> parts =
      absl::StrSplit(log, "evaluation before training: accuracy");
  EXPECT_EQ(parts.size(), 2u) << log;
}

// The summary names the best adapter.
TEST_F(TrainerLoopTest, TheBestAdapterIsWaitedForWhereTheRestMayBeLost) {
  held_out_.problems = {data_.problems[0]};
  loaded_.config.evaluation.interval = 2;
  loaded_.config.checkpoint.on_write_error = OnWriteError::kContinue;
  const std::string best = JoinPath(FolderOf(loaded_.config.run),
                                    "adapter-best/adapter_model.safetensors");
  const std::string in_the_way = ObstructOnFirstAnswer(best);
  int waits = 0;
  on_wait_ = [&] {
    ++waits;
    std::filesystem::remove(in_the_way);
  };
  is_stopped_ = false;
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(waits, 1);
  EXPECT_TRUE(FileExists(best));
}

TEST_F(TrainerLoopTest, AnObjectiveOfReferencesAloneAsksNobody) {
  Config& config = loaded_.config;
  config.objective.preset = "sft";
  config.objective.component_clip = kNoClip;
  config.objective.kappa = 1.0;
  config.run.name = "stopped";
  EXPECT_TRUE(absl::IsCancelled(Run(0)));
  is_stopped_ = false;
  for (const int64_t max_staleness : {0, 1}) {
    config.run.name = absl::StrCat("sft-", max_staleness);
    ASSERT_TRUE(Run(max_staleness).ok());
    EXPECT_TRUE(rollouts_->submissions_.empty());
    EXPECT_TRUE(shown_.step.answers.empty());
    EXPECT_TRUE(teachers_->weights_.empty());
    EXPECT_TRUE(teachers_->tasks_.empty());
    EXPECT_THAT(MetricOfSteps("samples"), ElementsAre(2, 2, 2, 2));
    EXPECT_THAT(MetricOfSteps("untrainable_samples"), ElementsAre(0, 0, 0, 0));
    // A random model of 300 tokens gives each token about 1/300.
    for (const double loss : MetricOfSteps("loss")) EXPECT_NEAR(loss, 5.7, 1.5);
  }
  held_out_.problems = {data_.problems[0]};
  config.evaluation.kl_problems = 1;
  config.run.name = "evaluated";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->held_out_submissions_.size(), 2u)
      << "the answers that are graded, and none for the divergence";
}

TEST_F(TrainerLoopTest, AFewAnswersOfEachStepAreKeptAndShown) {
  Config& config = loaded_.config;
  config.trainer.batch_size = 6;
  config.rollout.group_size = 2;
  answer_of_ = [this](const SamplingKey& key) {
    return key.sample == 0 ? Boxed("123")
                           : text_.tokenizer->Encode("hi").value();
  };
  ASSERT_TRUE(Run(0).ok());
  const std::string path =
      JoinPath(JoinPath(folder_, config.run.name), "answers.jsonl");
  for (int64_t step = 1; step <= 4; ++step) {
    const auto kept = ReadStepAnswers(path, step);
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_EQ(kept->step, step);
    const std::vector<nlohmann::json> samples = SamplesOfStep(step);
    ASSERT_EQ(kept->answers.size(), 4u);
    for (const ShownAnswer& answer : kept->answers) {
      const bool is_first = answer.place % 2 == 0;
      const nlohmann::json& sample =
          samples.at(static_cast<size_t>(answer.place));
      EXPECT_EQ(answer.id, sample.at("id"));
      EXPECT_EQ(answer.problem, sample.at("problem"));
      EXPECT_EQ(answer.text, is_first ? "\\boxed{123}" : "hi");
      EXPECT_EQ(answer.expected, "123");
      EXPECT_EQ(answer.extracted, is_first ? "123" : "");
      EXPECT_EQ(answer.grade,
                is_first ? AnswerGrade::kRight : AnswerGrade::kNoAnswer);
    }
  }
  EXPECT_EQ(shown_.step.step, 4);
  EXPECT_EQ(shown_.step.answers, ReadStepAnswers(path, 4)->answers);

  // The next attempt does all steps again.
  const std::string whole = ReadFile(path, 1 << 20).value();
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(ReadFile(path, 1 << 20).value(), whole);
}

TEST_F(TrainerLoopTest, RightAnswersAreCountedAmongThoseThatCanBeGraded) {
  Config& config = loaded_.config;
  config.trainer.batch_size = 3;
  answer_ = Boxed("123");
  data_.problems[1].answer.clear();
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(MetricOfSteps("/rollout/correct_fraction"),
              ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(MetricOfSteps("/rollout/solved_fraction"),
              ElementsAre(1, 1, 1, 1));
}

TEST_F(TrainerLoopTest, NoAnswerIsWrongWhereNoneCanBeGraded) {
  Config& config = loaded_.config;
  answer_ = Boxed("123");
  const auto measures = [&](const std::string& name) {
    config.run.name = name;
    EXPECT_TRUE(Run(0).ok());
    const std::string lines =
        ReadFile(JoinPath(JoinPath(folder_, name), "metrics.jsonl"), 1 << 20)
            .value();
    EXPECT_THAT(lines, HasSubstr("boxed_fraction"));
    return absl::StrContains(lines, "correct_fraction") ||
           absl::StrContains(lines, "solved_fraction");
  };
  EXPECT_TRUE(measures("graded"));
  config.objective.preset = "sft";  // its steps sample no answers
  config.objective.component_clip = kNoClip;
  config.objective.kappa = 1.0;
  is_stopped_ = false;
  EXPECT_FALSE(measures("unsampled"));
  config.objective = Config().objective;
  for (Problem& problem : data_.problems) problem.answer.clear();
  EXPECT_FALSE(measures("ungraded"));
}

TEST_F(TrainerLoopTest, EachStepSaysWhetherTheClipHidesSomething) {
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(MetricOfSteps("/terms/entangled_rollout/clip_hides"),
              ElementsAre(0, 0, 0, 0));
}

// Returns the versions of each set in the order in which the teachers got them.
std::vector<std::map<WeightSet, int64_t>> VersionsOf(
    const std::vector<PolicyUpdates>& given) {
  std::vector<std::map<WeightSet, int64_t>> versions;
  for (const PolicyUpdates& updates : given) {
    versions.emplace_back();
    for (const auto& [set, update] : updates) {
      versions.back()[set] = update->version;
    }
  }
  return versions;
}

TEST_F(TrainerLoopTest, TeachersGetTheSetsThatTheTermsRead) {
  constexpr WeightSet kBase = WeightSet::kBase;
  constexpr WeightSet kSnapshot = WeightSet::kSnapshot;
  constexpr WeightSet kEma = WeightSet::kEma;
  constexpr WeightSet kLive = WeightSet::kLive;
  using Versions = std::vector<std::map<WeightSet, int64_t>>;
  Config& config = loaded_.config;
  config.teacher.snapshot_interval = 2;
  const auto term = [](const char* name, WeightSet weights) {
    return Term{.name = name,
                .student = ViewName::kNoneReference,
                .target = TeacherPass{weights, ViewName::kCrossReference},
                .weight = 1.0};
  };
  config.run.name = "base";
  config.objective.terms = {term("a", kBase)};
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(VersionsOf(teachers_->weights_), (Versions{{{kBase, 0}}}));
  config.run.name = "snapshot";
  config.objective.terms = {term("a", kBase), term("b", kSnapshot)};
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(VersionsOf(teachers_->weights_),
            (Versions{{{kSnapshot, 0}}, {{kSnapshot, 2}}, {{kSnapshot, 4}}}));
  config.run.name = "all";
  config.trainer.steps = 3;
  config.objective.terms = {
      term("a", kLive), term("b", kSnapshot), term("c", kEma)};
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(VersionsOf(teachers_->weights_),
            (Versions{{{kSnapshot, 0}, {kEma, 0}, {kLive, 0}},
                      {{kSnapshot, 0}, {kEma, 1}, {kLive, 1}},
                      {{kSnapshot, 2}, {kEma, 2}, {kLive, 2}},
                      {{kSnapshot, 2}, {kEma, 3}, {kLive, 3}}}));
  // The rollout workers got the same update, byte for byte.
  EXPECT_EQ(teachers_->weights_.back().at(kLive), rollouts_->served_);
  EXPECT_NE(teachers_->weights_.back().at(kEma)->adapter.digest,
            rollouts_->served_->adapter.digest);
}

// Where each step's terms count tokens: GKD's references or its answers.
TEST_F(TrainerLoopTest, AStepOfGkdTrainsAnswersOrReferences) {
  Config& config = loaded_.config;
  config.objective.preset = "gkd";
  config.trainer.steps = config.trainer.schedule_steps = 8;
  text_ = LoadTextPipeline(folder_, MakeViewOptions(config), -1).value();
  std::vector<int64_t> sampled;
  for (int64_t step = 1; step <= 8; ++step) {
    if (StepKindOf(config, step) == StepKind::kRollouts) {
      sampled.push_back(step);
    }
  }
  ASSERT_GT(sampled.size(), 1u);
  ASSERT_LT(sampled.size(), 7u);
  for (const int64_t max_staleness : {0, 1}) {
    config.run.name = absl::StrCat("gkd-", max_staleness);
    testing::internal::CaptureStderr();
    const absl::Status outcome = Run(max_staleness);
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(outcome.ok()) << outcome;
    EXPECT_THAT(log, Not(HasSubstr("nothing to score")));
    std::vector<int64_t> submitted;
    for (const auto& [step, tasks] : rollouts_->submissions_) {
      submitted.push_back(step);
      EXPECT_EQ(tasks.size(), 2u);
    }
    EXPECT_EQ(submitted, sampled);
    const auto answers = MetricOfSteps("/terms/gkd/tokens");
    const auto references = MetricOfSteps("/terms/gkd_reference/tokens");
    const auto generated = MetricOfSteps("generated_tokens");
    const auto scored = MetricOfSteps("scored_tokens");
    for (int64_t step = 1; step <= 8; ++step) {
      const auto i = static_cast<size_t>(step - 1);
      const bool is_sampled = std::ranges::count(sampled, step) > 0;
      EXPECT_EQ(generated[i], is_sampled ? 6 : 0) << step;
      EXPECT_EQ(answers[i], is_sampled ? 6 : 0) << step;
      EXPECT_EQ(references[i] > 0, !is_sampled) << step;
      EXPECT_EQ(scored[i], answers[i] + references[i])
          << "a teacher is asked for nothing else";
      for (const auto& row : SamplesOfStep(step)) {
        EXPECT_EQ(row.at("rollout_ids").empty(), !is_sampled) << step;
      }
    }
  }
}

// An attempt that dies loses no answer, and its successor has the same kinds of
// steps.
TEST_F(TrainerLoopTest, ARunOfGkdGoesOnToTheSameResult) {
  Config& config = loaded_.config;
  config.objective.preset = "gkd";
  config.trainer.steps = config.trainer.schedule_steps = 6;
  text_ = LoadTextPipeline(folder_, MakeViewOptions(config), -1).value();
  config.run.name = "whole";
  ASSERT_TRUE(Run(0).ok());
  const std::vector<double> losses = MetricOfSteps("loss");
  const auto all = static_cast<int64_t>(rollouts_->keys_.size());
  ASSERT_GT(all, 1);
  for (int64_t left = 1; left < all; left += 2) {
    config.run.name = absl::StrCat("cut-", left);
    num_left_ = left;
    EXPECT_TRUE(absl::IsUnavailable(Run(0)));
    num_left_ = all - left;
    ASSERT_TRUE(Run(0).ok()) << "it samples no answer again";
    EXPECT_EQ(MetricOfSteps("loss"), losses) << "bit for bit";
  }
}

// The figure covers both answers to a step, from both micro-batches.
TEST_F(TrainerLoopTest, TheSamplersMismatchIsOfAllAnswersOfAStep) {
  const auto mismatches = [&](const char* key) {
    std::vector<double> values;
    const RunFolder folder = RunFolder::Open(loaded_.config.run).value();
    EXPECT_TRUE(ForEachJsonLine(folder.File("metrics.jsonl"),
                                [&](const nlohmann::json& row, int) {
                                  values.push_back(
                                      row.at("sampler_mismatch").at(key));
                                  return absl::OkStatus();
                                })
                    .ok());
    return values;
  };
  loaded_.config.run.name = "unknown";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(mismatches("tokens"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(mismatches("max"), ElementsAre(0, 0, 0, 0));
  const std::vector<double> losses = MetricOfSteps("loss");

  loaded_.config.run.name = "known";
  logprobs_ = {-100, -100, -100};
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(mismatches("tokens"), ElementsAre(6, 6, 6, 6));
  // A random model of 300 tokens gives each token about 1/300.
  for (const double mean : mismatches("mean")) EXPECT_NEAR(mean, 94, 5);
  EXPECT_EQ(MetricOfSteps("loss"), losses) << "measured, not trained";

  // The end token is also the padding and is not scored.
  loaded_.config.run.name = "padded";
  PadWithTheEnd();
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(mismatches("tokens"), ElementsAre(4, 4, 4, 4));
}

TEST_F(TrainerLoopTest, WhatTeachersScoreIsCountedStepByStep) {
  ASSERT_TRUE(Run(0).ok());
  const std::vector<double> tokens = MetricOfSteps("scored_tokens");
  EXPECT_GT(tokens[0], 0);
  EXPECT_EQ(tokens, std::vector<double>(4, tokens[0]));
}

TEST_F(TrainerLoopTest, AStepWithoutATokenForAnyTermRestsWithAWarning) {
  PadWithTheEnd();
  loaded_.config.objective.terms = {
      {.name = "on_policy",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kCrossRollout},
       .weight = 1.0}};
  even_answer_ = {kSmallEndId};
  ASSERT_TRUE(Run(0).ok()) << "its neighbour is trained";
  answer_ = {kSmallEndId};
  for (const int64_t max_staleness : {0, 1}) {
    loaded_.config.run.name = absl::StrCat("all-", max_staleness);
    testing::internal::CaptureStderr();
    const absl::Status outcome = Run(max_staleness);
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(outcome.ok()) << outcome;
    EXPECT_THAT(MetricOfSteps("untrainable_samples"), ElementsAre(2, 2, 2, 2));
    EXPECT_THAT(MetricOfSteps("gradient_norm"), ElementsAre(0, 0, 0, 0));
    for (int64_t step = 1; step <= 4; ++step) {
      EXPECT_THAT(
          log,
          HasSubstr(absl::StrCat("step ", step, " has nothing to learn from")));
    }
  }
}

// Wherever the workers stop, a step is finished with the answers that it had.
TEST_F(TrainerLoopTest, AllAnswersOfAStepAreRecalled) {
  Config& config = loaded_.config;
  config.trainer.steps = 1;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % kMaxAttempts >= 2 ? "123" : "5");
  };
  for (const auto source :
       {ReferenceSource::kDual, ReferenceSource::kVerified}) {
    config.rollout.source = source;
    config.run.name = absl::StrCat(NameOf(source), "-whole");
    num_left_ = -1;
    ASSERT_TRUE(Run(0).ok());
    const std::vector<double> losses = MetricOfSteps("loss");
    const auto all = static_cast<int64_t>(rollouts_->keys_.size());
    for (int64_t answers = 1; answers < all; ++answers) {
      config.run.name = absl::StrCat(NameOf(source), "-", answers);
      num_left_ = answers;
      EXPECT_TRUE(absl::IsUnavailable(Run(0)));
      num_left_ = all - answers;
      ASSERT_TRUE(Run(0).ok()) << "it samples no answer again";
      EXPECT_EQ(MetricOfSteps("loss"), losses) << "bit for bit";
    }
  }
}

// A batch of eight draws from three rows, so some rows come three times.
TEST_F(TrainerLoopTest, NoAnswerOfAStepIsDrawnTwice) {
  Config& config = loaded_.config;
  config.trainer.batch_size = 8;
  config.trainer.steps = 2;
  for (const int64_t group_size : {1, 2}) {
    config.rollout.group_size = group_size;
    config.run.name = absl::StrCat("groups-of-", group_size);
    ASSERT_TRUE(Run(0).ok());
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> drawn;
    for (const auto& [id, key] : rollouts_->keys_) {
      drawn.insert({key.step, key.example, key.sample});
    }
    EXPECT_EQ(rollouts_->keys_.size(), 16u);
    EXPECT_EQ(drawn.size(), 16u) << group_size;
  }
}

TEST_F(TrainerLoopTest, AnAnswerOfAnotherPolicyIsRefused) {
  lies_ = true;
  for (const int64_t max_staleness : {0, 1}) {
    const absl::Status status = Run(max_staleness);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("an answer to step 1 was sampled by version 1"));
  }
}

}  // namespace
}  // namespace dapd
