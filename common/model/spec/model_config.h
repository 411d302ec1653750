// The architecture of a decoder-only Hugging Face model: what config.json says
// about qwen3, qwen2, llama and mistral, as one struct with four traits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/spec/rope_config.h"

namespace dapd {

struct ModelConfig {
  std::string folder;      // that it was read from; empty: none
  std::string model_type;  // "qwen3", "qwen2", "llama" or "mistral"

  int64_t vocab_size = 0;  // rows of the embedding; may exceed the tokenizer's
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // its own field; not hidden_size / num_heads
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  bool tied_embeddings = false;

  // The traits in which the families differ.
  bool qk_norm = false;      // qwen3: RMSNorm on each head of q and k
  bool qkv_bias = false;     // qwen2, or attention_bias: bias on q, k and v
  bool output_bias = false;  // attention_bias (not qwen2): bias on o as well
  bool mlp_bias = false;     // llama with mlp_bias

  std::vector<int64_t> eos_token_ids;  // generation_config.json, else config

  // Trunk, embedding, head (once if tied) and norms.
  int64_t NumParameters() const;
};

// The seven projections of a decoder layer, in the order used everywhere.
enum class Projection { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kNumProjections = 7;
// "q_proj", ..., "down_proj".
const char* ProjectionName(Projection projection);
// "model.layers.3.self_attn.q_proj": the module of a projection in a
// checkpoint.
std::string ProjectionModule(int64_t layer, Projection projection);
// Columns and rows of the weight, which is stored [out, in].
int64_t ProjectionIn(const ModelConfig& config, Projection projection);
int64_t ProjectionOut(const ModelConfig& config, Projection projection);

bool ProjectionHasBias(const ModelConfig& config, Projection projection);
std::vector<Projection> AllProjections();

// Parameters of a LoRA of rank `rank` on `targets` of every layer.
int64_t NumLoraParameters(const ModelConfig& config,
                          int64_t rank,
                          const std::vector<Projection>& targets);

// INVALID_ARGUMENT, naming the number, if heads, key-value heads or the MLP's
// width cannot be divided by `ranks` that split every layer
// (common/sharding/sharded_weights.h).
absl::Status CheckSplit(const ModelConfig& config, int64_t ranks);

// Reads config.json (old and new spellings) and generation_config.json of a
// model folder. The family comes first: a model of another one is refused by
// it, whatever else is missing. What this decoder does not compute (a rope_type
// that rope_config.h does not know, a sliding window shorter than the context,
// attention that is not causal, MoE, quantisation, another activation) is
// refused by its key; so is a folder that holds an adapter as well.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder);

}  // namespace dapd
