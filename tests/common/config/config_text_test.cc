#include "common/config/config_text.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/config/config_keys.h"
#include "tests/fakes/loaded_config.h"

namespace dapd {
namespace {

TEST(DumpConfigTest, TheDumpLoadsToTheSameConfiguration) {
  auto first = Load(kGood,
                    {"objective.component_clip=.inf",
                     "lora.targets=[q_proj, up_proj]",
                     "evaluation.marker=' = '",
                     "objective.terms=[{name: only, student: none_rollout, "
                     "teacher: cross_rollout, teacher_weights: base, weight: "
                     "0.1}]"});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->config.evaluation.marker, " = ");
  auto second = Load(DumpConfig(*first));
  ASSERT_TRUE(second.ok()) << second.status() << DumpConfig(*first);
  const auto a = ConfigKeys(first->config);
  const auto b = ConfigKeys(second->config);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(FormatValue(a[i]), FormatValue(b[i])) << a[i].name;
  }
}

TEST(DumpConfigTest, PromptsOfSeveralLinesSurviveTheDump) {
  const auto loaded = Load(
      "model: {path: m}\nprompts:\n  none: |-\n    First {problem}\n\n"
      "    \\boxed{} \"x\"\n  probe: \"\\t{reference}\\e\\n\"\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.prompts.none, "First {problem}\n\n\\boxed{} \"x\"");
  const auto again = Load(DumpConfig(*loaded));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->config.prompts.none, loaded->config.prompts.none);
  EXPECT_EQ(again->config.prompts.probe, "\t{reference}\x1B\n");
  EXPECT_EQ(again->config.prompts.privileged, PromptsSection().privileged);
}

TEST(ConfigReferenceTest, TheDocumentInTheRepositoryIsUpToDate) {
  const auto document = ReadFile(
      std::string(DAPD_SOURCE_DIR) + "/docs/configuration.md", 1 << 20);
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(*document, ConfigReference())
      << "write it anew: dapd config-reference > docs/configuration.md";
}

TEST(ConfigJsonTest, ValuesHaveTheTypesOfTheirKeys) {
  const auto loaded = Load(kGood,
                           {"objective.component_clip=.inf",
                            "lora.targets=[q_proj, up_proj]",
                            "run.name=\"7\"",
                            "evaluation.marker=\"true\"",
                            "trainer.steps=12",
                            "trainer.learning_rate=1.5e-4"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const nlohmann::ordered_json json = ConfigJson(*loaded);
  EXPECT_EQ(json["run"]["name"], "7");
  EXPECT_EQ(json["evaluation"]["marker"], "true");
  EXPECT_EQ(json["trainer"]["steps"], 12);
  EXPECT_TRUE(json["trainer"]["steps"].is_number_integer());
  EXPECT_EQ(json["trainer"]["learning_rate"], 1.5e-4);
  EXPECT_EQ(json["trainer"]["shard_base"], false);
  EXPECT_EQ(json["objective"]["component_clip"], ".inf");
  EXPECT_EQ(json["lora"]["targets"],
            nlohmann::ordered_json({"q_proj", "up_proj"}));
}

}  // namespace

}  // namespace dapd
