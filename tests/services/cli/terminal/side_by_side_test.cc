#include "services/cli/terminal/side_by_side.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/utf8.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

TEST(WrapTextTest, LinesBreakAtSpaces) {
  EXPECT_THAT(WrapText("", 8), ElementsAre(""));
  EXPECT_THAT(WrapText("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(WrapText("12345678 9", 8), ElementsAre("12345678", "9"));
  EXPECT_THAT(WrapText("a\n\n  b\r\n", 8), ElementsAre("a", "", "  b", ""));
}

TEST(WrapTextTest, AWordThatIsTooLongBreaksAnywhere) {
  EXPECT_THAT(WrapText("abcdefghij", 4), ElementsAre("abcd", "efgh", "ij"));
  EXPECT_THAT(WrapText("a bcdefgh", 4), ElementsAre("a", "bcde", "fgh"));
  EXPECT_THAT(WrapText(" bcdefgh", 4), ElementsAre(" bcd", "efgh"));
}

TEST(WrapTextTest, WhatATerminalWouldObeyIsEscaped) {
  EXPECT_THAT(WrapText("\x1b[2J\tx\xff", 40),
              ElementsAre("\\x1b[2J    x\\xff"));
  EXPECT_THAT(WrapText("\\frac{1}{2} $x^2$", 40),
              ElementsAre("\\frac{1}{2} $x^2$"));
}

TEST(WrapTextTest, WideCharactersTakeTwoColumnsAndCombiningOnesNone) {
  EXPECT_EQ(TerminalColumns("ab"), 2u);
  EXPECT_EQ(TerminalColumns("\xe4\xb8\xad\xe6\x96\x87"), 4u);
  EXPECT_EQ(TerminalColumns("e\xcc\x81"), 1u);
  EXPECT_THAT(WrapText("\xe4\xb8\xad\xe6\x96\x87x", 3),
              ElementsAre("\xe4\xb8\xad", "\xe6\x96\x87x"));
}

TEST(SideBySideTest, TheShorterTextIsFilledUp) {
  EXPECT_EQ(SideBySide("one two three", "four", 19),
            "one two  | four\n"
            "three    |\n");
  EXPECT_EQ(SideBySide("\xe4\xb8\xad", "a\nb", 11),
            "\xe4\xb8\xad   | a\n"
            "     | b\n");
}

TEST(SideBySideTest, NoLineIsWiderThanItMayBe) {
  std::string bytes;
  for (int i = 0; i < 4096; ++i) bytes.push_back(static_cast<char>(i * 37));
  const std::string text = SideBySide(bytes, std::string(1000, 'x'), 80);
  EXPECT_TRUE(IsUtf8(text));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(TerminalColumns(line), 80u);
  }
}

}  // namespace
}  // namespace dapd
