#include "common/model/spec/model_card.h"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns the header that the hub reads: the text between the first two lines
// of dashes.
YAML::Node HeaderOf(const std::string& card) {
  EXPECT_THAT(card, StartsWith("---\n"));
  return YAML::Load(card.substr(4, card.find("\n---\n") - 3));
}

TEST(ModelCardTest, AnAdaptersHeaderNamesItsBase) {
  const std::string card =
      FormatModelCard({.title = "first",
                       .base_model = "Qwen/Qwen3-4B@0123abcd",
                       .lora = {.rank = 20, .alpha = 40},
                       .training = TrainingSection("trained\n")});
  const YAML::Node header = HeaderOf(card);
  EXPECT_EQ(header["base_model"].Scalar(), "Qwen/Qwen3-4B");
  EXPECT_EQ(header["base_model_relation"].Scalar(), "adapter");
  EXPECT_EQ(header["library_name"].Scalar(), "peft");
  EXPECT_EQ(header["pipeline_tag"].Scalar(), "text-generation");
  EXPECT_EQ(header["tags"].size(), 2u);
  EXPECT_THAT(card, HasSubstr("--max-lora-rank 32"));
  EXPECT_THAT(card, HasSubstr("--revision 0123abcd"));
  EXPECT_EQ(CardTraining(card), TrainingSection("trained\n"));
}

TEST(ModelCardTest, TheBaseThatWasTrainedOnIsFoundAgain) {
  const std::string section =
      TrainingSection("## Training\n\n* Steps: 3" + BaseDigestLine("12ab") +
                      "\n* Data, SHA-256: 34cd\n");
  EXPECT_EQ(
      CardBaseDigest(FormatModelCard({.title = "x", .training = section})),
      "12ab");
  EXPECT_EQ(CardBaseDigest(FormatModelCard({.title = "x"})), "");
  EXPECT_EQ(CardBaseDigest("# Mine\n\n* Base, SHA-256: 12ab\n"), "");
}

TEST(ModelCardTest, AMergedModelIsAModel) {
  const YAML::Node header = HeaderOf(FormatModelCard(
      {.title = "m", .base_model = "org/base", .is_merged = true}));
  EXPECT_EQ(header["library_name"].Scalar(), "transformers");
  EXPECT_EQ(header["base_model_relation"].Scalar(), "finetune");
  EXPECT_EQ(header["tags"].size(), 1u);
}

TEST(ModelCardTest, AFolderIsNoIdAndStandsInTheTextOnly) {
  // Without a folder of that name, the last path would be an id.
  ASSERT_TRUE(MakeDirectories(TempPath("cwd") + "/org/base").ok());
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(TempPath("cwd"));
  for (const char* folder : {"/models/base", "./org/base", "org/base"}) {
    const std::string card =
        FormatModelCard({.title = "m", .base_model = folder});
    EXPECT_FALSE(HeaderOf(card)["base_model"].IsDefined()) << folder;
    EXPECT_THAT(card, Not(HasSubstr("vllm serve")));
  }
  std::filesystem::current_path(before);
}

TEST(ModelCardTest, NoTextEndsWhatItStandsIn) {
  for (const std::string& name : {std::string("a\n---\nlicense: mit"),
                                  std::string("<script>alert(1)</script>"),
                                  std::string("a | b | c"),
                                  std::string("[x](javascript:alert(1))"),
                                  std::string("\x1b[2J\xff"),
                                  std::string("# `*_~")}) {
    const std::string card =
        FormatModelCard({.title = name, .base_model = name});
    const YAML::Node header = HeaderOf(card);
    EXPECT_EQ(header["license"].IsDefined(), false);
    EXPECT_EQ(header["library_name"].Scalar(), "peft");
    EXPECT_THAT(card, Not(HasSubstr("<script")));
    EXPECT_THAT(card, Not(HasSubstr("[x](")));
    EXPECT_THAT(card, Not(HasSubstr("a | b")));
    EXPECT_THAT(card, Not(HasSubstr("\x1b")));
  }
}

TEST(ModelCardTest, ABlockIsFencedByMoreThanItHolds) {
  EXPECT_EQ(MarkdownBlock("a", "json"), "```json\na\n```\n");
  EXPECT_EQ(MarkdownBlock("```\n````", ""), "`````\n```\n````\n`````\n");
}

TEST(ModelCardTest, ACardWithoutMarksHasNoTraining) {
  EXPECT_EQ(CardTraining("# another program's"), "");
  EXPECT_EQ(CardTraining("<!-- dapd: end of training -->\n"
                         "<!-- dapd: training -->\n"),
            "");
}

TEST(ModelCardTest, VllmKnowsAFewRanks) {
  EXPECT_EQ(VllmMaxLoraRank(1), 8);
  EXPECT_EQ(VllmMaxLoraRank(64), 64);
  EXPECT_EQ(VllmMaxLoraRank(65), 128);
  EXPECT_EQ(VllmMaxLoraRank(513), 0);
}

}  // namespace
}  // namespace dapd
