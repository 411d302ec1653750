#include "common/base/printable.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/utf8.h"

namespace dapd {
namespace {

TEST(PrintableTest, OrdinaryTextStaysAsItIs) {
  for (const char* text :
       {"", "a line", "C:\\new", "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(Printable(text), text);
    EXPECT_EQ(PrintableLines(text), text);
  }
}

TEST(PrintableTest, WhatATerminalWouldObeyIsEscaped) {
  EXPECT_EQ(Printable("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(Printable("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(Printable(std::string("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\u009b");            // CSI
  EXPECT_EQ(Printable("a\xe2\x80\xae z"), "a\\u202e z");  // right to left
  EXPECT_EQ(Printable("\xe2\x80\xa8"), "\\u2028");
}

// The cases are all characters of Unicode's Bidi_Control.
TEST(PrintableTest, WhatTurnsTheDirectionOfReadingIsEscaped) {
  for (const char* text : {"\u061c",
                           "\u200e",
                           "\u200f",
                           "\u202a",
                           "\u202b",
                           "\u202c",
                           "\u202d",
                           "\u202e",
                           "\u2066",
                           "\u2067",
                           "\u2068",
                           "\u2069"}) {
    EXPECT_EQ(Printable(text).substr(0, 2), "\\u") << Printable(text);
  }
}

TEST(PrintableTest, IllFormedBytesAreEscapedOneByOne) {
  EXPECT_EQ(Printable("a\xff z"), "a\\xff z");
  EXPECT_EQ(Printable("\xc3("), "\\xc3(");                  // cut off
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(PrintableTest, EveryByteAndPairOfBytesBecomesWellFormed) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first),
                                static_cast<char>(second)};
      const std::string line = Printable(text);
      ASSERT_TRUE(IsUtf8(line)) << first << " " << second;
      for (const char c : line) ASSERT_GE(static_cast<uint8_t>(c), 0x20);
      ASSERT_EQ(Printable(line), line);
    }
  }
}

TEST(PrintableTest, OnlyIndentedLinesGoOn) {
  EXPECT_EQ(PrintableLines("wrong:\n  a.yaml:1\n  a.yaml:2"),
            "wrong:\n  a.yaml:1\n  a.yaml:2");
  EXPECT_EQ(PrintableLines("id 'x\nE 2026-01-01T00:00:00.000Z run] forged'"),
            "id 'x\\nE 2026-01-01T00:00:00.000Z run] forged'");
  EXPECT_EQ(PrintableLines("x\n y\n"), "x\\n y\\n");
}

}  // namespace
}  // namespace dapd
