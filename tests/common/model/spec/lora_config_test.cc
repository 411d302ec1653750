#include "common/model/spec/lora_config.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

nlohmann::json Formatted(const std::string& base) {
  const LoraConfig lora{
      .rank = 4, .alpha = 8.0, .targets = {"q_proj", "up_proj"}};
  return nlohmann::json::parse(FormatLoraConfig(lora, base));
}

TEST(FormatLoraConfigTest, AHubIdAndItsRevisionHaveAFieldEach) {
  const nlohmann::json config = Formatted("Qwen/Qwen3-4B@v1.0");
  EXPECT_EQ(config["base_model_name_or_path"], "Qwen/Qwen3-4B");
  EXPECT_EQ(config["revision"], "v1.0");
}

TEST(FormatLoraConfigTest, AnythingElseIsTheNameAsItIs) {
  for (const char* base :
       {"Qwen/Qwen3-4B", "/models/a@b", "./models/a@b", ""}) {
    const nlohmann::json config = Formatted(base);
    EXPECT_EQ(config["base_model_name_or_path"], base);
    EXPECT_TRUE(config["revision"].is_null()) << base;
  }
}

// An adapter's digest depends on the order.
TEST(MakeLoraConfigTest, TargetsHaveOneOrderHoweverTheyAreListed) {
  const ModelConfig model{.num_layers = 1};
  const auto lora = MakeLoraConfig(
      {.rank = 4, .alpha = 8.0, .targets = {"up_proj", "q_proj", "up_proj"}},
      model);
  ASSERT_TRUE(lora.ok()) << lora.status();
  EXPECT_EQ(lora->targets, (std::vector<std::string>{"q_proj", "up_proj"}));
  const auto unknown = MakeLoraConfig({.targets = {"q_proj", "w_proj"}}, model);
  EXPECT_THAT(unknown.status().message(), HasSubstr("'w_proj'"));
}

}  // namespace
}  // namespace dapd
