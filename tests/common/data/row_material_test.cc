#include "common/data/row_material.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/base/json_lines.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

RowMaterial Full() {
  return {.columns = {{"hint", "H"}, {"context", ""}},
          .system = "",
          .before = {{"user", "1"}, {"assistant", "2"}},
          .after = {{"assistant", "", R"({"content":null,"tool_calls":[]})"},
                    {"tool", "r", R"({"z":1,"a":2})"}},
          .user_more = R"({"name":"Ada"})",
          .tools = R"([{"z":1,"a":2}])"};
}

TEST(RowMaterialTest, MaterialSurvivesItsJson) {
  for (const RowMaterial& material : {Full(), RowMaterial()}) {
    const auto again = ParseMaterial(
        ParseOrderedJson(MaterialJson(material).dump(), "").value());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(**again, material) << MaterialJson(material);
  }
  EXPECT_EQ(MaterialJson(RowMaterial()).dump(), "{}");
}

TEST(RowMaterialTest, EveryPartMakesAnotherSource) {
  const RowMaterial full = Full();
  const std::string key = PromptSource("P", &full).Key();
  EXPECT_NE(key, PromptSource("P").Key());
  EXPECT_NE(key, PromptSource("Q", &full).Key());
  RowMaterial other = Full();
  other.columns["hint"] = "h";
  EXPECT_NE(key, PromptSource("P", &other).Key());
  other = Full();
  other.system.reset();
  EXPECT_NE(key, PromptSource("P", &other).Key());
  other = Full();
  other.after.pop_back();
  EXPECT_NE(key, PromptSource("P", &other).Key());
}

TEST(RowMaterialTest, AnyOtherFormIsNamed) {
  for (const auto& [json, said] :
       {std::pair{"[]", "material is not an object"},
        std::pair{R"({"columns": {"a": 1}})", "'columns' is not an object of"},
        std::pair{R"({"before": {}})", "'before' is not a list of messages"},
        std::pair{R"({"after": [{"role": "tool"}]})", "'after' is not a list"},
        std::pair{R"({"after": [{"role": "tool", "content": 1}]})", "'after'"},
        std::pair{R"({"system": 1})", "'system' is not a part of it"},
        std::pair{R"({"hint": "x"})", "'hint' is not a part of it"}}) {
    const auto parsed = ParseMaterial(nlohmann::ordered_json::parse(json));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(said))
        << json;
  }
}

}  // namespace
}  // namespace dapd
