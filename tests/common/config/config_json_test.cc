#include "common/config/config_json.h"

#include "gtest/gtest.h"

#include "tests/fakes/loaded_config.h"

namespace dapd {
namespace {

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
