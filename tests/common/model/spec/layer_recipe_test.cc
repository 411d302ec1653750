#include "common/model/spec/layer_recipe.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/model_shapes.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

// Digests, the wire form and the ledger depend on it.
TEST(LayerRecipeTest, ProjectionsKeepTheirOrder) {
  EXPECT_THAT(ProjectionNames(FourBillion()),
              ElementsAre("q_proj",
                          "k_proj",
                          "v_proj",
                          "o_proj",
                          "gate_proj",
                          "up_proj",
                          "down_proj"));
}

TEST(LayerRecipeTest, ProjectionsOfOneInputAreAGroup) {
  const LayerRecipe recipe = LayerRecipeOf(FourBillion(), 0);
  EXPECT_THAT(recipe.Groups(),
              ElementsAre(ElementsAre(recipe.attention.q,
                                      recipe.attention.k,
                                      recipe.attention.v),
                          ElementsAre(recipe.attention.o),
                          ElementsAre(recipe.mlp.gate, recipe.mlp.up),
                          ElementsAre(recipe.mlp.down)));
  for (const auto& group : recipe.Groups()) {
    for (const Projection projection : group) {
      EXPECT_EQ(recipe[projection].in, recipe[group.front()].in);
    }
  }
}

TEST(LayerRecipeTest, APlainModelHasNoText) {
  EXPECT_EQ(RecipeText(FourBillion()), "");
}

// Their tensors have the same names and shapes, and workers tell models apart
// by the digest that the text is part of.
TEST(LayerRecipeTest, ATraitIsInTheText) {
  ModelConfig model = FourBillion();
  std::vector<std::string> texts = {RecipeText(model)};
  model.score_softcap = 50;
  texts.push_back(RecipeText(model));
  model.windows.assign(static_cast<size_t>(model.num_layers), 0);
  model.windows[1] = 4096;
  texts.push_back(RecipeText(model));
  std::swap(model.windows[0], model.windows[1]);
  texts.push_back(RecipeText(model));
  model.logit_softcap = 30;
  texts.push_back(RecipeText(model));
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(texts[i], texts[j]) << i << j;
  }
}

TEST(LayerRecipeTest, NormsBehindAttentionAndMlpTakeTheNamesOfTheOthers) {
  ModelConfig model = FourBillion();
  model.norms_after = true;
  std::vector<std::string> modules;
  for (const NormRecipe& norm : LayerRecipeOf(model, 0).norms) {
    modules.emplace_back(norm.module);
  }
  EXPECT_THAT(modules,
              ElementsAre("input_layernorm",
                          "post_attention_layernorm",
                          "pre_feedforward_layernorm",
                          "post_feedforward_layernorm",
                          "self_attn.q_norm",
                          "self_attn.k_norm"));
}

}  // namespace
}  // namespace dapd
