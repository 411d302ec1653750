#include "common/model/reference/decoder_layer.h"

#include "absl/functional/function_ref.h"

#include "common/model/reference/lora.h"

namespace dapd {
namespace {

// Returns a projection [N, out] of its input [N, in].
using Project = absl::FunctionRef<at::Tensor(Projection projection,
                                             const at::Tensor& input)>;

// Returns x after the norm at a place, or x itself if the recipe has none
// there.
using NormAt =
    absl::FunctionRef<at::Tensor(NormPlace place, const at::Tensor& x)>;

at::Tensor AttentionBlock(const AttentionRecipe& recipe,
                          int64_t index,
                          Project project,
                          NormAt norm,
                          const RotaryAngles& angles,
                          Attention& attention,
                          const at::Tensor& x) {
  const int64_t rows = x.size(0);
  const at::Tensor n = norm(NormPlace::kBeforeAttention, x);
  const auto heads = [&](Projection projection, int64_t count) {
    return project(projection, n).view({rows, count, recipe.head_dim});
  };
  at::Tensor q = heads(recipe.q, recipe.heads);
  at::Tensor k = heads(recipe.k, recipe.kv_heads);
  const at::Tensor v = heads(recipe.v, recipe.kv_heads);
  q = norm(NormPlace::kQueries, q);
  k = norm(NormPlace::kKeys, k);
  return project(
      recipe.o,
      attention.Attend(
          recipe, index, ApplyRotary(q, angles), ApplyRotary(k, angles), v));
}

at::Tensor Activated(Activation activation, const at::Tensor& gate) {
  return activation == Activation::kSilu ? at::silu(gate)
                                         : at::gelu(gate, "tanh");
}

at::Tensor MlpBlock(const MlpRecipe& recipe,
                    Project project,
                    NormAt norm,
                    const at::Tensor& x) {
  const at::Tensor m = norm(NormPlace::kBeforeMlp, x);
  return project(recipe.down,
                 Activated(recipe.activation, project(recipe.gate, m)) *
                     project(recipe.up, m));
}

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x,
                   const at::Tensor& weight,
                   double eps,
                   NormScale scale) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor factor = at::rsqrt(wide.square().mean(-1, true) + eps);
  if (scale == NormScale::kOnePlusWeight) {
    return (wide * factor * (1.0 + weight.to(at::kFloat))).to(x.scalar_type());
  }
  return weight * (wide * factor).to(x.scalar_type());
}

at::Tensor ForwardLayer(const DecoderLayer& layer,
                        const RotaryAngles& angles,
                        Attention& attention,
                        const SumOverRanks& sum,
                        const at::Tensor& x) {
  const LayerRecipe recipe = LayerRecipeOf(layer.config, layer.index);
  const auto project = [&](Projection projection, const at::Tensor& input) {
    const size_t p = IndexOf(projection);
    return LoraLinear(input,
                      layer.weights.weight[p],
                      layer.weights.bias[p],
                      layer.lora == nullptr ? nullptr : &(*layer.lora)[p],
                      layer.lora_scale);
  };
  const auto norm = [&](NormPlace place, const at::Tensor& values) {
    const at::Tensor& weight = layer.weights.norm(place);
    return weight.defined() ? RmsNorm(values,
                                      weight,
                                      layer.config.rms_norm_eps,
                                      recipe.norm_scale)
                            : values;
  };
  at::Tensor attended = AttentionBlock(
      recipe.attention, layer.index, project, norm, angles, attention, x);
  if (sum) sum(attended);
  const at::Tensor middle = x + norm(NormPlace::kAfterAttention, attended);
  at::Tensor mlp = MlpBlock(recipe.mlp, project, norm, middle);
  if (sum) sum(mlp);
  return middle + norm(NormPlace::kAfterMlp, mlp);
}

}  // namespace dapd
