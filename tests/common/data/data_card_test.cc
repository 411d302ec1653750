#include "common/data/data_card.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DataCardTest, TheHeadStandsBetweenTwoLines) {
  EXPECT_EQ(CardHead("---\na: 1\n---\n# Text\n"), "\na: 1\n");
  EXPECT_EQ(CardHead("\n---\r\na: 1\r\n---\r\ntext"), "\r\na: 1\r\n");
  EXPECT_EQ(CardHead("---\na: 1\n---"), "\na: 1\n");
  EXPECT_EQ(CardHead("---\na: 1\n----\n---\n"), "\na: 1\n----\n");
  for (const char* text :
       {"", "# Text\n---\na: 1\n---\n", "---", "--- a\n---\n", "---\na: 1\n"}) {
    EXPECT_EQ(CardHead(text), "") << text;
  }
}

TEST(DataCardTest, ConfigurationsAreReadInTheirOrder) {
  const auto read = ParseDataCard(
      "configs:\n"
      "- config_name: b\n"
      "  data_files: [x-*, y.jsonl]\n"
      "  default: true\n"
      "  license: mit\n"
      "- config_name: a\n"
      "  data_dir: ./more/\n",
      "README.md");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].name, "b");
  EXPECT_TRUE((*read)[0].is_default);
  ASSERT_EQ((*read)[0].data_files->size(), 1u);
  EXPECT_EQ((*read)[0].data_files->front().split, "train");
  EXPECT_THAT((*read)[0].data_files->front().patterns,
              ElementsAre("x-*", "y.jsonl"));
  EXPECT_EQ((*read)[1].data_dir, "more");
  EXPECT_FALSE((*read)[1].data_files.has_value());
  EXPECT_EQ(ChooseConfiguration(*read, "", "d")->name, "b");
  EXPECT_EQ(ChooseConfiguration(*read, "a", "d")->name, "a");
}

TEST(DataCardTest, WhatIsNotReadIsNotParsed) {
  EXPECT_TRUE(ParseDataCard("no: [yaml", "README.md")->empty());
  const auto bad = ParseDataCard("configs: [yaml", "README.md");
  EXPECT_EQ(ExitCodeOf(bad.status()), ExitCode::kData);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("README.md: "));
}

TEST(DataCardTest, ADefaultIsTrueOrFalse) {
  EXPECT_THAT(
      std::string(ParseDataCard("configs:\n- {config_name: a, default: maybe}",
                                "README.md")
                      .status()
                      .message()),
      HasSubstr("'a': default is not true or false"));
}

}  // namespace
}  // namespace dapd
