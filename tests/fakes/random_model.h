// Makes a tiny random model in memory, for tests that need real forward passes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/model/weights/weight_names.h"
#include "common/model/weights/weights.h"

namespace dapd {

// Draws all tensors of a model whose `config` is set: values with the standard
// deviation `spread`, and around 1 for norms.
inline void DrawWeights(uint64_t seed,
                        double spread,
                        at::ScalarType dtype,
                        ModelWeights* weights) {
  weights->layers.resize(static_cast<size_t>(weights->config.num_layers));
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const WeightSlot& slot : WeightSlots(*weights)) {
    *slot.target = (at::randn(slot.shape, generator) * spread +
                    (slot.name.find("norm") != std::string::npos ? 1.0 : 0.0))
                       .to(dtype);
  }
  if (weights->config.tied_embeddings) weights->head = weights->embedding;
}

// A model with every trait that only LibTorch's operations compute.
inline constexpr char kUnusualFamily[] = "unusual";

inline std::shared_ptr<const ModelWeights> MakeRandomModel(
    const std::string& family,
    uint64_t seed = 1,
    at::ScalarType dtype = at::kFloat,
    int64_t vocab_size = 97) {
  auto weights = std::make_shared<ModelWeights>();
  ModelConfig& config = weights->config;
  config.model_type = family;
  config.vocab_size = vocab_size;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 12;
  config.max_positions = 256;
  config.qk_norm = family == "qwen3";
  config.qkv_bias = family == "qwen2";
  config.tied_embeddings = family != "llama";
  if (family == kUnusualFamily) {
    config.norms_after = true;
    config.norm_scale = NormScale::kOnePlusWeight;
    config.activation = Activation::kGeluTanh;
    config.scales_embedding = true;
    config.score_divisor = 17;
    config.score_softcap = 2;
    config.logit_softcap = 3;
    config.rotated_dim = 8;
    config.windows = {9, 0};
  }
  config.eos_token_ids = {0};
  DrawWeights(seed, 0.3, dtype, weights.get());
  return weights;
}

// Returns ids of that vocabulary in no particular order.
inline std::vector<int32_t> RandomModelIds(int64_t count, int32_t start) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>((start + 13 * i) % 97));
  }
  return ids;
}

}  // namespace dapd
