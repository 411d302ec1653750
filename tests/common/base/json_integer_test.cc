#include "common/base/json_integer.h"

#include <limits>
#include <string>
#include <vector>

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

// nlohmann would turn each of these texts into some integer.
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

TEST(JsonTokenIdsTest, AnErrorNamesThePlace) {
  EXPECT_EQ(JsonTokenIds(json::parse("[0,9]"), "ids", 10).value(),
            (std::vector<int32_t>{0, 9}));
  for (const auto& [text, error] :
       std::vector<std::pair<std::string, std::string>>{
           {"[1,2.0]", "ids[1]: 2.0 is not an integer from 0 to 9"},
           {"[true]", "ids[0]: true is not an integer"},
           {"[0,1,-1]", "ids[2]: -1 is not an integer"},
           {"[10]", "ids[0]: 10 is not an integer"},
           {"[1e30]", "ids[0]: 1e+30 is not an integer"},
           {"7", "ids: token ids must be a list"}}) {
    const auto ids = JsonTokenIds(json::parse(text), "ids", 10);
    ASSERT_FALSE(ids.ok()) << text;
    EXPECT_NE(ids.status().message().find(error), absl::string_view::npos)
        << ids.status();
  }
}

TEST(JsonTokenIdsTest, ALongTextIsCut) {
  const std::string text(1 << 20, 'x');
  const auto number = JsonInteger(json(text), 0);
  EXPECT_LT(number.status().message().size(), 200u);
}

}  // namespace
}  // namespace dapd
