#include "common/base/json_integer.h"

#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

using nlohmann::json;

TEST(JsonIntegerTest, IntegersOfTheRangeAreRead) {
  for (const int64_t number : {-3, 0, 7}) {
    EXPECT_EQ(JsonInteger(json(number), -3, 7).value(), number);
  }
  EXPECT_EQ(JsonInteger(json::parse("9223372036854775807"), 0).value(),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(JsonInteger(nlohmann::ordered_json(5), 0).value(), 5);
}

// Each of these nlohmann would turn into some integer.
TEST(JsonIntegerTest, WhatIsNoIntegerOfTheRangeIsRefusedWithItsText) {
  for (const char* text : {"true",
                           "1.5",
                           "1.0",
                           "4.18447e+29",
                           "-4",
                           "8",
                           "4294967297",
                           "18446744073709551615",
                           "\"1\"",
                           "null",
                           "[1]"}) {
    const auto number = JsonInteger(json::parse(text), -3, 7);
    ASSERT_FALSE(number.ok()) << text;
    EXPECT_EQ(number.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(number.status().message().find(json::parse(text).dump()),
              absl::string_view::npos)
        << number.status();
  }
}

}  // namespace
}  // namespace dapd
