#include "common/data/json_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/json_lines.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> TextOf(const std::string& json) {
  return JsonText(ParseJson(json, "test").value(), "rows.jsonl:3: 'answer'");
}

TEST(JsonTextTest, NumbersAreAsTheyWereWritten) {
  for (const char* json : {"72",
                           "-72",
                           "0.5",
                           "true",
                           "18446744073709551615",
                           "-9223372036854775808"}) {
    EXPECT_EQ(TextOf(json).value_or(""), json);
  }
  EXPECT_EQ(TextOf("\"a\\u00e9\"").value_or(""), "a\xC3\xA9");
}

TEST(JsonTextTest, ANumberWhoseDigitsAreLostIsRefused) {
  for (const char* json : {"18446744073709551616",
                           "-9223372036854775809",
                           "1267650600228229401496703205376",
                           "1e30"}) {
    const auto text = TextOf(json);
    EXPECT_EQ(ExitCodeOf(text.status()), ExitCode::kData) << json;
    EXPECT_THAT(std::string(text.status().message()),
                HasSubstr("rows.jsonl:3: 'answer' holds a number past 64"));
    EXPECT_THAT(std::string(text.status().message()), HasSubstr("in quotes"));
  }
}

}  // namespace
}  // namespace dapd
