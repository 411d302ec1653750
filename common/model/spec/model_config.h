// The architecture of a decoder-only Hugging Face model: the sizes and traits
// from its config.json (model_family.h). layer_recipe.h describes how a layer
// is made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/spec/layer_recipe.h"
#include "common/model/spec/rope_config.h"

namespace dapd {

struct ModelConfig {
  std::string folder;      // where it was read; empty: nowhere
  std::string model_type;  // a row of model_family.cc

  int64_t vocab_size = 0;  // rows of the embedding; may exceed the tokenizer's
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // a field; not hidden_size / num_heads
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  bool tied_embeddings = false;

  // The traits in which the families differ. LayerRecipeOf and ModelRecipeOf
  // give them their meaning; nothing else reads them.
  bool qk_norm = false;      // RMSNorm on each head of q and k
  bool qkv_bias = false;     // bias on q, k and v
  bool output_bias = false;  // bias on o
  bool mlp_bias = false;     // bias on gate, up and down
  bool norms_after = false;  // also norms after attention and MLP
  NormScale norm_scale = NormScale::kWeight;
  Activation activation = Activation::kSilu;
  bool scales_embedding = false;  // by sqrt(hidden_size)
  double score_divisor = 0.0;     // scores are over its root; 0: head_dim
  double score_softcap = 0.0;     // 0: attention scores are not capped
  double logit_softcap = 0.0;     // 0: final logits are not capped
  int64_t rotated_dim = 0;        // dimensions of a head that turn; 0: all
  // By layer, 0 for none; empty: no layer has a window. Holds only windows that
  // are shorter than max_positions.
  std::vector<int64_t> windows;

  std::vector<int64_t> eos_token_ids;  // generation_config.json, or config

  // Counts trunk, embedding, head (once if tied) and norms.
  int64_t NumParameters() const;
  int64_t RotatedDim() const {
    return rotated_dim > 0 ? rotated_dim : head_dim;
  }
};

// Returns the parameters of a LoRA of rank `rank` on the projections that
// `targets` names.
int64_t NumLoraParameters(const ModelConfig& config,
                          int64_t rank,
                          const std::vector<std::string>& targets);

// Returns INVALID_ARGUMENT, naming the number, if heads, key-value heads or the
// MLP's width cannot be divided by `ranks` that split every layer
// (common/sharding/sharded_weights.h).
absl::Status CheckSplit(const ModelConfig& config, int64_t ranks);

// Reads config.json (old and new spellings) and generation_config.json of a
// model folder. Refuses a model of an unknown family by its family before it
// reads anything else. Refuses, by its key, a setting that would change the
// result and that this decoder does not compute (a rope_type that rope_config.h
// does not know, attention that is not causal, MoE, quantisation, another
// activation). Refuses a folder that also holds an adapter.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder);

}  // namespace dapd
