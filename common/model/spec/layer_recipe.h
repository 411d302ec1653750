// The recipe of a decoder layer: every part of the architecture that differs
// between model families, described once. All code that computes a layer, plans
// its memory, splits it over ranks or names its tensors reads it here:
//
//   x += after(mixer(before(x)))       mixer: attention
//   x += after(mlp(before(x)))         mlp: down(activation(gate) * up)
//
// A norm that the recipe does not list leaves its input unchanged. ModelRecipe
// has the parts around the layers: the scale of the embedding, the cap of the
// final logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

struct ModelConfig;

// RMSNorm rounds to the model's dtype and multiplies by the stored weight w, or
// it multiplies by 1 + w in float32 and rounds once.
enum class NormScale { kWeight, kOnePlusWeight };

// The place of a norm. kQueries and kKeys norm each head by itself.
enum class NormPlace {
  kBeforeAttention,
  kBeforeMlp,
  kQueries,
  kKeys,
  kAfterAttention,  // on the output of attention
  kAfterMlp,        // on the output of the MLP
};
inline constexpr size_t kNumNormPlaces = 6;

struct NormRecipe {
  NormPlace place = NormPlace::kBeforeAttention;
  absl::string_view module;  // inside the layer: "input_layernorm"
  int64_t size = 0;          // size of its weight
};

enum class Activation {
  kSilu,
  kGeluTanh,  // GELU (Hendrycks & Gimpel 2016) by its formula with tanh
};

// The place of a projection in LayerRecipe::projections and so in everything
// that has an entry for each projection of a layer (LayerWeights, LoraLayer).
enum class Projection : size_t {};
constexpr size_t IndexOf(Projection projection) {
  return static_cast<size_t>(projection);
}

// How ranks that share a layer divide the weight [out, in] of a projection.
enum class SplitBy {
  kOutputs,  // each computes its rows
  kInputs,   // each computes with its columns; the results add up
};

struct ProjectionRecipe {
  absl::string_view name;    // PEFT's: "q_proj"
  absl::string_view module;  // inside the layer: "self_attn.q_proj"
  int64_t in = 0;
  int64_t out = 0;
  bool has_bias = false;
  // Projections of one group read the same input and may be one product.
  int group = 0;
  SplitBy split = SplitBy::kOutputs;
};

// softmax(cap(scale q k^T)) v over the keys up to the query's own.
struct AttentionRecipe {
  Projection q{}, k{}, v{}, o{};
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotated_dim = 0;  // number of leading dimensions that turn
  int64_t window = 0;       // number of last keys a query sees; 0: all
  double scale = 0.0;       // scale of the scores
  double softcap = 0.0;     // c in c tanh(score / c); 0: no cap

  // Returns whether scores are divided by sqrt(head_dim).
  bool HasUsualScale() const;
  // Returns whether the scale is usual and there is neither window nor cap.
  bool IsPlain() const {
    return window == 0 && softcap == 0.0 && HasUsualScale();
  }
};

struct MlpRecipe {
  Projection gate{}, up{}, down{};
  int64_t width = 0;
  Activation activation = Activation::kSilu;
};

struct LayerRecipe {
  std::vector<NormRecipe> norms;  // in the order of LayoutDigest (weights.h)
  NormScale norm_scale = NormScale::kWeight;
  // In the order of adapter files, digests and the wire form.
  std::vector<ProjectionRecipe> projections;
  AttentionRecipe attention;
  MlpRecipe mlp;

  bool HasNorm(NormPlace place) const;
  const ProjectionRecipe& operator[](Projection projection) const {
    return projections[IndexOf(projection)];
  }
  // Returns all projections in their order.
  std::vector<Projection> All() const;
  // Returns the projections in groups that read the same input, in their order.
  std::vector<std::vector<Projection>> Groups() const;
  // Returns the number of all weights and biases; NumProjected counts only the
  // weights of the projections.
  int64_t NumParameters() const;
  int64_t NumProjected() const;
};

// The parts of a model around its layers.
struct ModelRecipe {
  NormScale final_norm = NormScale::kWeight;
  // Factor of the embedding, rounded to the model's dtype; 1: none.
  double embedding_scale = 1.0;
  double logit_softcap = 0.0;  // of the final logits, like softcap above
};

LayerRecipe LayerRecipeOf(const ModelConfig& config, int64_t layer);
ModelRecipe ModelRecipeOf(const ModelConfig& config);

// Returns "model.layers.3.self_attn.q_proj", the name of a module of a layer in
// a checkpoint.
std::string ModulePath(int64_t layer, absl::string_view module);

// Returns the names of the projections of all layers, each once, in their
// order.
std::vector<std::string> ProjectionNames(const ModelConfig& config);

// Returns one line with all traits that are not visible in the names and shapes
// of the tensors, with all digits, so that digests of models with different
// traits differ; empty for a model without such traits.
std::string RecipeText(const ModelConfig& config);

}  // namespace dapd
