#include "common/tokenizer/jinja/json_value.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/tokenizer/jinja/python_repr.h"

namespace dapd::jinja {
namespace {

using testing::HasSubstr;

std::string Dumped(const std::string& text) {
  const auto value = FromJson(nlohmann::ordered_json::parse(text));
  if (!value.ok()) return std::string(value.status().message());
  return ToJson(*value, {}).value();
}

TEST(JsonValueTest, ValuesAreWrittenAsPythonWritesThem) {
  // The right sides are json.dumps(json.loads(left), ensure_ascii=False).
  EXPECT_EQ(Dumped(R"({"b":1,"a":[true,null,"\u00e9\u001f\/"]})"),
            "{\"b\": 1, \"a\": [true, null, \"\xC3\xA9\\u001f/\"]}");
  EXPECT_EQ(Dumped("[1.0,1e15,1e16,1e-5,-0.0,9223372036854775807]"),
            "[1.0, 1000000000000000.0, 1e+16, 1e-05, -0.0, "
            "9223372036854775807]");
  EXPECT_EQ(Dumped("{}"), "{}");
}

TEST(JsonValueTest, ANumberThatIsNotReadExactlyIsRefused) {
  for (const char* text : {"[18446744073709551615]",
                           "{\"a\": 123456789012345678901234567890}",
                           "-99999999999999999999"}) {
    EXPECT_THAT(Dumped(text), HasSubstr("past 64 bits")) << text;
  }
}

}  // namespace
}  // namespace dapd::jinja
