#include "common/config/preset_terms.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/config/load_config.h"

namespace dapd {
namespace {

TEST(PresetTermsTest, EveryScalesConfigurationHasThePapersWeights) {
  struct Scale {
    std::string file;
    std::vector<double> weights;  // in the order of the six terms
  };
  const std::vector<Scale> scales = {
      {"qwen3-1.7b.yaml", {.4, .4, .2, .4, .4, .2}},
      {"qwen3-4b.yaml", {2. / 15, 2. / 15, 2. / 15, .4, .4, .8}},
      {"qwen3-8b.yaml", {.1, .1, .2, .64, .64, .32}},
      {"qwen3-14b.yaml", {.1, .1, .2, 1.6 / 3, 1.6 / 3, 1.6 / 3}},
      {"qwen3-32b.yaml", {.16, .16, .08, 1.6 / 3, 1.6 / 3, 1.6 / 3}},
  };
  for (const Scale& scale : scales) {
    const auto loaded =
        LoadConfig(std::string(DAPD_SOURCE_DIR) + "/configs/" + scale.file, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::vector<TermConfig> terms = ExpandTerms(loaded->config.objective);
    ASSERT_EQ(terms.size(), 6u);
    double sum = 0.0;
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(terms[i].weight, scale.weights[i], 1e-12)
          << scale.file << " " << terms[i].name;
      sum += terms[i].weight;
    }
    EXPECT_NEAR(sum, 2.0, 1e-12) << scale.file;
  }
}

TEST(PresetTermsTest, GivenTermsReplaceThePreset) {
  ObjectiveSection section;
  section.terms = {{.name = "mine", .weight = 3.0}};
  ASSERT_EQ(ExpandTerms(section).size(), 1u);
  EXPECT_EQ(ExpandTerms(section)[0].name, "mine");
}

}  // namespace
}  // namespace dapd
