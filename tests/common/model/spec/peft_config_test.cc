#include "common/model/spec/peft_config.h"

#include <cmath>
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

using nlohmann::json;
using ::testing::HasSubstr;

ModelConfig Model() {
  ModelConfig model;
  model.num_layers = 3;
  return model;
}

json Written() {
  const LoraConfig lora{
      .rank = 4, .alpha = 8.0, .targets = {"q_proj", "up_proj"}};
  return json::parse(FormatLoraConfig(lora, "a/b"));
}

absl::StatusOr<PeftConfig> Parse(const json& config) {
  return ParsePeftConfig(config.dump(), Model(), "test");
}

// Returns the adapted modules as a text such as "0.q 2.up".
std::string Modules(const json& config) {
  const auto peft = Parse(config);
  if (!peft.ok()) return std::string(peft.status().message());
  std::string text;
  for (size_t layer = 0; layer < peft->layers.size(); ++layer) {
    const LayerRecipe recipe = LayerRecipeOf(Model(), 0);
    for (const Projection projection : recipe.All()) {
      if (!peft->layers[layer][IndexOf(projection)].has_value()) continue;
      const std::string name(recipe[projection].name);
      text += (text.empty() ? "" : " ") + std::to_string(layer) + "." +
              name.substr(0, name.find('_'));
    }
  }
  return text;
}

json With(const std::vector<std::pair<std::string, json>>& settings) {
  json config = Written();
  for (const auto& [key, value] : settings) config[key] = value;
  return config;
}

TEST(PeftConfigTest, WhatIsWrittenIsReadBack) {
  const auto peft = Parse(Written());
  ASSERT_TRUE(peft.ok()) << peft.status();
  EXPECT_EQ(peft->lora.rank, 4);
  EXPECT_EQ(peft->lora.alpha, 8.0);
  EXPECT_EQ(peft->lora.targets,
            (std::vector<std::string>{"q_proj", "up_proj"}));
  EXPECT_EQ(peft->base, "a/b");
}

TEST(PeftConfigTest, TargetsAreNamesEndsOfNamesOrAnExpression) {
  const std::string all = "0.q 0.up 1.q 1.up 2.q 2.up";
  EXPECT_EQ(Modules(Written()), all);
  for (const json& targets :
       {json{"self_attn.q_proj", "mlp.up_proj"},
        json(".*(q|up)_proj"),
        json(R"(model\.layers\.\d+\.(?:self_attn|mlp)\.(?:q|up)_proj)")}) {
    EXPECT_EQ(Modules(With({{"target_modules", targets}})), all) << targets;
  }
  EXPECT_EQ(Modules(With({{"target_modules",
                           {"layers.1.mlp.up_proj",
                            "model.layers.2.self_attn.q_proj"}}})),
            "1.up 2.q");
  EXPECT_EQ(Modules(With({{"target_modules", ".*[01].*up_proj"},
                          {"exclude_modules", {"layers.1.mlp.up_proj"}}})),
            "0.up");
  EXPECT_EQ(Modules(With({{"modules_to_save", {"layers.1.mlp"}}})),
            "0.q 0.up 1.q 2.q 2.up");
  EXPECT_EQ(Modules(With({{"target_modules", "all-linear"},
                          {"exclude_modules", ".*(self_attn|gate|down).*"}})),
            "0.up 1.up 2.up");
}

TEST(PeftConfigTest, LayersToTransformLeaveTheOthersAsTheyAre) {
  EXPECT_EQ(Modules(With({{"layers_to_transform", {0, 2}}})),
            "0.q 0.up 2.q 2.up");
  EXPECT_EQ(
      Modules(With({{"layers_to_transform", 1}, {"layers_pattern", "layers"}})),
      "1.q 1.up");
  EXPECT_THAT(Modules(With({{"layers_to_transform", 1},
                            {"layers_pattern", {"blocks"}}})),
              HasSubstr("target_modules matches no projection"));
}

TEST(PeftConfigTest, EachModuleHasItsRankAndItsScale) {
  const auto peft = Parse(
      With({{"rank_pattern", {{"q_proj", 16}, {"layers.1.*up_proj", 2}}},
            {"alpha_pattern", {{"^model.layers.0.self_attn.q_proj", 64}}}}));
  ASSERT_TRUE(peft.ok()) << peft.status();
  const LayerRecipe recipe = LayerRecipeOf(Model(), 0);
  const Projection q = recipe.attention.q;
  const Projection up = recipe.mlp.up;
  const auto module = [&](size_t layer, Projection projection) {
    return *peft->layers[layer][IndexOf(projection)];
  };
  EXPECT_EQ(module(0, q).rank, 16);
  EXPECT_EQ(module(0, q).scale(), 4);
  EXPECT_EQ(module(1, q).scale(), 0.5);
  EXPECT_EQ(module(1, up).rank, 2);
  EXPECT_EQ(module(1, up).scale(), 4);
  EXPECT_EQ(module(2, up).scale(), 2);
  EXPECT_EQ(peft->lora.rank, 16);
  EXPECT_EQ(peft->lora.scale(), 4);
}

TEST(PeftConfigTest, ARankStabilisedScaleIsDividedByTheRoot) {
  const auto peft = Parse(With({{"use_rslora", true}, {"r", 3}}));
  ASSERT_TRUE(peft.ok()) << peft.status();
  EXPECT_NEAR(peft->lora.scale(), 8 / std::sqrt(3.0), 1e-15);
  EXPECT_EQ(peft->lora.rank, 3);
}

TEST(PeftConfigTest, AnAlphaThatWeightsCannotBeScaledByIsRefused) {
  for (const double alpha : {1e6, -1e6}) {
    EXPECT_TRUE(Parse(With({{"lora_alpha", alpha}})).ok()) << alpha;
    EXPECT_THAT(Modules(With({{"lora_alpha", alpha * 1.01}})),
                HasSubstr("test: lora_alpha must be a number up to 1e+06"));
  }
}

TEST(PeftConfigTest, WhatIsRefusedIsNamedWithTheWayOut) {
  for (const auto& [key, value, expected] :
       std::vector<std::tuple<std::string, json, std::string>>{
           {"use_dora", true, "test: use_dora = true is not supported"},
           {"a_key_of_tomorrow", 1, "a_key_of_tomorrow = 1 is not supported"},
           {"target_parameters", {"x"}, "merge_and_unload"},
           {"use_rslora", 1, "use_rslora is neither true nor false"},
           {"target_modules", "(?=q).*", "is not read: "},
           {"target_modules", ".{,9}_proj", "is not read: it contains {,"},
           {"target_modules", ".*", "reaches 'lm_head'"},
           {"target_modules",
            {"q_proj", "lm_head"},
            "reaches 'lm_head', which is no projection of its layers; "
            "let PEFT merge"},
           {"target_modules",
            {"q_proj", "w_proj"},
            "'w_proj' is no projection of its layers; let PEFT merge"},
           {"target_modules", "c_attn", "matches no projection"},
           {"target_modules", nullptr, "target_modules is null"},
           {"target_modules", {1}, "1 is no name of a module"},
           {"layers_to_transform", {3}, "layers_to_transform: "},
           {"rank_pattern", {{"q_proj", 0}}, "rank_pattern: "},
           {"rank_pattern",
            {{"q_proj", 2}, {".*q_proj", 3}},
            "rank_pattern has two values for model.layers.0.self_attn.q_proj"},
           {"alpha_pattern", {{"q_proj", "x"}}, "alpha_pattern must be"}}) {
    EXPECT_THAT(Modules(With({{key, value}})), HasSubstr(expected));
  }
}

TEST(CheckStartAdapterTest, EverySettingThatDoesNotFitIsNamedAtOnce) {
  const std::string folder = TempPath("adapter");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/adapter_config.json",
                                  With({{"use_rslora", true}}).dump())
                  .ok());
  const auto peft = ReadPeftConfig(folder, Model());
  ASSERT_TRUE(peft.ok()) << peft.status();
  LoraSection settings{
      .rank = 4, .alpha = 16.0, .targets = {"up_proj", "q_proj"}};
  EXPECT_TRUE(CheckStartAdapter(folder, *peft, settings).ok());
  settings = {.rank = 8, .alpha = 8.0, .targets = {"q_proj"}};
  const absl::Status status = CheckStartAdapter(folder, *peft, settings);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("lora.rank=4 lora.alpha=16 lora.targets=[q_proj,up_proj]"));
  EXPECT_EQ(ExitCodeOf(ReadPeftConfig(folder + "/none", Model()).status()),
            ExitCode::kData);
}

}  // namespace
}  // namespace dapd
