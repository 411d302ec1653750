#include "common/model/spec/layer_recipe.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/model/spec/model_config.h"

namespace dapd {
namespace {

double UsualScale(int64_t head_dim) {
  return 1.0 / std::sqrt(static_cast<double>(head_dim));
}

std::vector<NormRecipe> NormsOf(const ModelConfig& config) {
  using enum NormPlace;
  const int64_t hidden = config.hidden_size;
  std::vector<NormRecipe> norms = {
      {kBeforeAttention, "input_layernorm", hidden}};
  if (config.norms_after) {
    norms.insert(norms.end(),
                 {{kAfterAttention, "post_attention_layernorm", hidden},
                  {kBeforeMlp, "pre_feedforward_layernorm", hidden},
                  {kAfterMlp, "post_feedforward_layernorm", hidden}});
  } else {
    norms.push_back({kBeforeMlp, "post_attention_layernorm", hidden});
  }
  if (config.qk_norm) {
    norms.insert(norms.end(),
                 {{kQueries, "self_attn.q_norm", config.head_dim},
                  {kKeys, "self_attn.k_norm", config.head_dim}});
  }
  return norms;
}

// Adds projections to `recipe` and returns the place of each.
class Projections {
 public:
  explicit Projections(LayerRecipe* recipe) : recipe_(*recipe) {}

  void NextGroup() { ++group_; }

  Projection Add(absl::string_view name,
                 absl::string_view module,
                 int64_t in,
                 int64_t out,
                 bool has_bias,
                 SplitBy split) {
    recipe_.projections.push_back({.name = name,
                                   .module = module,
                                   .in = in,
                                   .out = out,
                                   .has_bias = has_bias,
                                   .group = group_,
                                   .split = split});
    return static_cast<Projection>(recipe_.projections.size() - 1);
  }

 private:
  LayerRecipe& recipe_;
  int group_ = 0;
};

void SetAttention(const ModelConfig& config,
                  int64_t layer,
                  Projections* projections,
                  AttentionRecipe* attention) {
  using enum SplitBy;
  const int64_t hidden = config.hidden_size;
  const int64_t queries = config.num_heads * config.head_dim;
  const int64_t keys = config.num_kv_heads * config.head_dim;
  const bool bias = config.qkv_bias;
  attention->q = projections->Add(
      "q_proj", "self_attn.q_proj", hidden, queries, bias, kOutputs);
  attention->k = projections->Add(
      "k_proj", "self_attn.k_proj", hidden, keys, bias, kOutputs);
  attention->v = projections->Add(
      "v_proj", "self_attn.v_proj", hidden, keys, bias, kOutputs);
  projections->NextGroup();
  attention->o = projections->Add("o_proj",
                                  "self_attn.o_proj",
                                  queries,
                                  hidden,
                                  config.output_bias,
                                  kInputs);
  projections->NextGroup();
  attention->heads = config.num_heads;
  attention->kv_heads = config.num_kv_heads;
  attention->head_dim = config.head_dim;
  attention->rotated_dim = config.RotatedDim();
  attention->window =
      config.windows.empty() ? 0 : config.windows[static_cast<size_t>(layer)];
  attention->scale = config.score_divisor > 0.0
                         ? std::pow(config.score_divisor, -0.5)
                         : UsualScale(config.head_dim);
  attention->softcap = config.score_softcap;
}

void SetMlp(const ModelConfig& config,
            Projections* projections,
            MlpRecipe* mlp) {
  using enum SplitBy;
  const int64_t hidden = config.hidden_size;
  const int64_t width = config.intermediate_size;
  const bool bias = config.mlp_bias;
  mlp->gate = projections->Add(
      "gate_proj", "mlp.gate_proj", hidden, width, bias, kOutputs);
  mlp->up =
      projections->Add("up_proj", "mlp.up_proj", hidden, width, bias, kOutputs);
  projections->NextGroup();
  mlp->down = projections->Add(
      "down_proj", "mlp.down_proj", width, hidden, bias, kInputs);
  mlp->width = width;
  mlp->activation = config.activation;
}

}  // namespace

bool AttentionRecipe::HasUsualScale() const {
  return scale == UsualScale(head_dim);
}

bool LayerRecipe::HasNorm(NormPlace place) const {
  return std::ranges::count(norms, place, &NormRecipe::place) > 0;
}

std::vector<Projection> LayerRecipe::All() const {
  std::vector<Projection> all;
  for (size_t i = 0; i < projections.size(); ++i) {
    all.push_back(static_cast<Projection>(i));
  }
  return all;
}

std::vector<std::vector<Projection>> LayerRecipe::Groups() const {
  std::vector<std::vector<Projection>> groups;
  for (size_t i = 0; i < projections.size(); ++i) {
    if (i == 0 || projections[i].group != projections[i - 1].group) {
      groups.emplace_back();
    }
    groups.back().push_back(static_cast<Projection>(i));
  }
  return groups;
}

int64_t LayerRecipe::NumParameters() const {
  int64_t parameters = NumProjected();
  for (const ProjectionRecipe& projection : projections) {
    if (projection.has_bias) parameters += projection.out;
  }
  for (const NormRecipe& norm : norms) parameters += norm.size;
  return parameters;
}

int64_t LayerRecipe::NumProjected() const {
  int64_t parameters = 0;
  for (const ProjectionRecipe& projection : projections) {
    parameters += projection.out * projection.in;
  }
  return parameters;
}

LayerRecipe LayerRecipeOf(const ModelConfig& config, int64_t layer) {
  LayerRecipe recipe;
  recipe.norms = NormsOf(config);
  recipe.norm_scale = config.norm_scale;
  Projections projections(&recipe);
  SetAttention(config, layer, &projections, &recipe.attention);
  SetMlp(config, &projections, &recipe.mlp);
  return recipe;
}

ModelRecipe ModelRecipeOf(const ModelConfig& config) {
  return {.final_norm = config.norm_scale,
          .embedding_scale =
              config.scales_embedding
                  ? std::sqrt(static_cast<double>(config.hidden_size))
                  : 1.0,
          .logit_softcap = config.logit_softcap};
}

std::string ModulePath(int64_t layer, absl::string_view module) {
  return absl::StrCat("model.layers.", layer, ".", module);
}

std::vector<std::string> ProjectionNames(const ModelConfig& config) {
  std::vector<std::string> names;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const ProjectionRecipe& projection :
         LayerRecipeOf(config, layer).projections) {
      if (std::ranges::count(names, projection.name) == 0) {
        names.emplace_back(projection.name);
      }
    }
  }
  return names;
}

std::string RecipeText(const ModelConfig& config) {
  std::string text;
  const auto add = [&text](const char* what, double value, double usual) {
    if (value == usual) return;
    absl::StrAppend(&text, absl::StrFormat("%s %.17g ", what, value));
  };
  const ModelRecipe model = ModelRecipeOf(config);
  add("embedding", model.embedding_scale, 1.0);
  add("logits", model.logit_softcap, 0.0);
  add("norm", static_cast<double>(model.final_norm), 0.0);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerRecipe recipe = LayerRecipeOf(config, layer);
    const AttentionRecipe& attention = recipe.attention;
    if (attention.window > 0) absl::StrAppend(&text, "layer ", layer, " ");
    add("window", static_cast<double>(attention.window), 0.0);
    add("scale", attention.scale, UsualScale(attention.head_dim));
    add("scores", attention.softcap, 0.0);
    add("rotated",
        static_cast<double>(attention.rotated_dim),
        static_cast<double>(attention.head_dim));
    add("activation", static_cast<double>(recipe.mlp.activation), 0.0);
    add("norms", static_cast<double>(recipe.norm_scale), 0.0);
  }
  return text;
}

}  // namespace dapd
