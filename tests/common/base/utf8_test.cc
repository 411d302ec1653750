#include "common/base/utf8.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

TEST(Utf8Test, WellFormedTextStaysAsItIs) {
  for (const char* text : {"", "a\n\x1b[2J", "\xc3\xa9\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(ToUtf8(text), text);
  }
}

TEST(Utf8Test, ABeginningEndsWithAWholeCharacter) {
  EXPECT_EQ(Utf8Head("abc", 3), "abc");
  EXPECT_EQ(Utf8Head("abc", 2), "ab");
  const std::string text = "a\xc3\xa9\xf0\x9f\x98\x80z";
  for (const auto& [bytes, head] :
       {std::pair{0, 0}, {1, 1}, {2, 1}, {3, 3}, {6, 3}, {7, 7}, {8, 8}}) {
    EXPECT_EQ(Utf8Head(text, static_cast<size_t>(bytes)),
              text.substr(0, static_cast<size_t>(head)))
        << bytes;
  }
}

TEST(Utf8Test, WhatIsNoCharacterIsReplaced) {
  EXPECT_EQ(ToUtf8("a\xff z"), "a\xef\xbf\xbd z");
  EXPECT_EQ(ToUtf8("\xe4\xb8"), "\xef\xbf\xbd");  // cut off
  EXPECT_EQ(ToUtf8("\xe4\xb8 z"), "\xef\xbf\xbd z");
  EXPECT_EQ(ToUtf8("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");  // overlong
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first),
                                static_cast<char>(second)};
      EXPECT_EQ(IsUtf8(text), ToUtf8(text) == text) << first << " " << second;
      // The bytes stand before other characters and at the end.
      for (const std::string rest : {"", "\x80", "\x80\x80 z", "x\xff"}) {
        EXPECT_EQ(
            nlohmann::json(ToUtf8(text + rest)).dump(),
            nlohmann::json(text + rest)
                .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
            << first << " " << second;
      }
    }
  }
}

}  // namespace
}  // namespace dapd
