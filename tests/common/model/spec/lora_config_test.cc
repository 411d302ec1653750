#include "common/model/spec/lora_config.h"

#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

nlohmann::json Formatted(const std::string& base) {
  const LoraConfig lora{
      .rank = 4, .alpha = 8.0, .targets = {Projection::kQ, Projection::kUp}};
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

TEST(FormatLoraConfigTest, ReadsBackAsItWas) {
  const auto lora = ParseLoraConfig(Formatted("a/b@c").dump(), "test");
  ASSERT_TRUE(lora.ok()) << lora.status();
  EXPECT_EQ(lora->rank, 4);
  EXPECT_EQ(lora->alpha, 8.0);
  EXPECT_EQ(lora->targets,
            (std::vector<Projection>{Projection::kQ, Projection::kUp}));
}

TEST(ParseLoraConfigTest, AnAlphaThatWeightsCannotBeScaledByIsRefused) {
  for (const double alpha : {1e6, -1e6}) {
    auto config = Formatted("a/b");
    config["lora_alpha"] = alpha;
    EXPECT_TRUE(ParseLoraConfig(config.dump(), "test").ok()) << alpha;
    config["lora_alpha"] = alpha * 1.01;
    EXPECT_THAT(
        std::string(ParseLoraConfig(config.dump(), "test").status().message()),
        HasSubstr("test: lora_alpha must be a number up to 1e+06"));
  }
}

TEST(ParseLoraConfigTest, WhatIsRefusedIsNamedWithTheWayOut) {
  for (const auto& [key, value, expected] :
       std::vector<std::tuple<std::string, nlohmann::json, std::string>>{
           {"use_rslora", true, "test: use_rslora = true is not supported"},
           {"modules_to_save", {"lm_head"}, "merge_and_unload"},
           {"target_modules", ".*q_proj", "\".*q_proj\"; it must be a list"},
           {"target_modules",
            {"q_proj", "lm_head"},
            "'lm_head' is not one of the seven projections; let PEFT merge"},
           {"target_modules", nullptr, "target_modules is null"}}) {
    auto config = Formatted("a/b");
    config[key] = value;
    EXPECT_THAT(
        std::string(ParseLoraConfig(config.dump(), "test").status().message()),
        HasSubstr(expected));
  }
}

// What is written has to be read back with the same digest.
TEST(MakeLoraConfigTest, TargetsHaveOneOrderHoweverTheyAreListed) {
  const auto lora = MakeLoraConfig(
      {.rank = 4, .alpha = 8.0, .targets = {"up_proj", "q_proj", "up_proj"}});
  ASSERT_TRUE(lora.ok()) << lora.status();
  EXPECT_EQ(lora->targets,
            (std::vector<Projection>{Projection::kQ, Projection::kUp}));
  const auto read = ParseLoraConfig(FormatLoraConfig(*lora, "a/b"), "test");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->targets, lora->targets);
  const auto unknown = MakeLoraConfig({.targets = {"q_proj", "w_proj"}});
  EXPECT_THAT(unknown.status().message(), HasSubstr("'w_proj'"));
}

TEST(CheckStartAdapterTest, EverySettingThatDoesNotFitIsNamedAtOnce) {
  const std::string folder = TempPath("adapter");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/adapter_config.json",
                                  Formatted("a/b").dump())
                  .ok());
  LoraSection settings{
      .rank = 4, .alpha = 8.0, .targets = {"up_proj", "q_proj"}};
  EXPECT_TRUE(CheckStartAdapter(folder, settings).ok());
  settings = {.rank = 8, .alpha = 16.0, .targets = {"q_proj"}};
  const absl::Status status = CheckStartAdapter(folder, settings);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("lora.rank=4 lora.alpha=8 lora.targets=[q_proj,up_proj]"));
  EXPECT_EQ(ExitCodeOf(CheckStartAdapter(folder + "/none", settings)),
            ExitCode::kData);
}

}  // namespace
}  // namespace dapd
