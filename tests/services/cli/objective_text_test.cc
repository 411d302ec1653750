#include "services/cli/objective_text.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PresetTextTest, ItSaysOfWhomNothingIsAsked) {
  const std::string path = TempPath("config.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, "model: {path: some/model}\n").ok());
  const auto loaded = LoadConfig(path, {"objective.preset=sft"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<std::string> lines = PresetText(*loaded);
  EXPECT_EQ(lines.front(), "preset           sft");
  EXPECT_THAT(lines, Contains("  no rollout workers are needed"));
  EXPECT_THAT(lines, Contains("  no teachers are needed"));
}

TEST(AnswersOfStepTextTest, ItNamesWhatStandsInTheReferencesPlace) {
  Config config;
  config.rollout.group_size = 4;
  config.trainer.batch_size = 32;
  config.rollout.source = ReferenceSource::kDual;
  EXPECT_THAT(AnswersOfStepText(config),
              HasSubstr("4 of 8 problems a step; reference: a second answer"));
}

TEST(PresetTextTest, ItNamesTheFurtherTeachersThatAreAsked) {
  const std::string path = TempPath("config.yaml");
  ASSERT_TRUE(
      WriteFileAtomically(path,
                          "model: {path: some/model}\n"
                          "teachers: [{name: big, path: m, adapter: tuned}, "
                          "{name: other, path: n}]\n")
          .ok());
  const auto loaded = LoadConfig(
      path, {"objective.preset=opd", "objective.teacher_weights=big"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<std::string> lines = PresetText(*loaded);
  EXPECT_THAT(lines,
              Contains("  no teachers of the student's own model are needed"));
  EXPECT_THAT(lines, Contains("  teacher big: m with the adapter tuned"));
  EXPECT_THAT(lines, testing::Not(Contains(HasSubstr("other"))));
  EXPECT_THAT(
      TermsText(loaded->config.objective),
      Contains(HasSubstr("none_rollout <- none_rollout (teacher big), inf, 1, "
                         "reverse_kl")));
}

TEST(AnswersOfStepTextTest, ItSaysHowManyStepsSampleNothing) {
  Config config;
  config.objective.preset = "gkd";
  config.objective.gkd.reference_share = 0.25;
  EXPECT_THAT(AnswersOfStepText(config),
              HasSubstr("25 % of the steps train the references and sample "
                        "nothing"));
}

TEST(RowTeachersTextTest, EveryRowIsCountedForItsTeacher) {
  Dataset data;
  for (const char* teacher : {"big", "", "big", "small", ""}) {
    data.problems.push_back({.teacher = teacher});
  }
  EXPECT_EQ(RowTeachersText(data), "rows' teachers   base 2, big 2, small 1");
}

TEST(TermsTextTest, WhatIsUnusualOfATermStandsBehindIt) {
  ObjectiveSection objective;
  objective.terms = {
      {.name = "on_policy",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kCrossRollout},
       .skip_tokens = 3,
       .weight = 0.25}};
  EXPECT_THAT(
      TermsText(objective),
      ElementsAre(StartsWith("terms "),
                  testing::AllOf(StartsWith("  on_policy "),
                                 HasSubstr("none_rollout <- "),
                                 HasSubstr("without the first 3 tokens")),
                  "  sum of weights      0.25"));
}

}  // namespace
}  // namespace dapd
