// A model and an adapter in the form that CpuDecoder computes with.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/generation/cpu/cpu_linear.h"
#include "common/model/fast/layer_projections.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct CpuLayer {
  std::vector<float> input_norm;
  std::vector<float> post_attention_norm;
  std::vector<float> q_norm;  // empty: no norm
  std::vector<float> k_norm;
  std::array<CpuLinear, kNumLayerProducts> linears;  // by LayerProduct
};

// Immutable once packed. Of the ModelWeights it holds nothing but an untied
// embedding, so the caller can free them.
struct CpuModel {
  ModelConfig config;
  at::ScalarType dtype = at::kFloat;
  std::vector<CpuLayer> layers;
  std::vector<float> final_norm;
  CpuLinear head;
  at::Tensor embedding;  // undefined if the head is the embedding

  // Returns the bytes that one token reads: all panels.
  int64_t WeightBytes() const;
  // Writes the embedding of a token, [hidden].
  void Embed(int32_t token, float* row) const;
};

// Takes CPU tensors and as much time as a copy of the weights.
std::shared_ptr<const CpuModel> PackModel(const ModelWeights& weights);

struct CpuAdapter {
  std::vector<std::array<CpuLora, kNumLayerProducts>> layers;
};
// Packs `adapter`, an adapter of `config`'s model. Reuses the memory of
// `recycled`, an adapter of the same model.
CpuAdapter PackAdapter(const Adapter& adapter,
                       const ModelConfig& config,
                       CpuAdapter recycled = {});

}  // namespace dapd
