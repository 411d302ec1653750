// A model and an adapter in the form that PanelDecoder computes with.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "torch/torch.h"

#include "common/generation/panel_linear.h"
#include "common/model/adapter.h"
#include "common/model/weights.h"

namespace dapd {

// Four products a layer: q, k and v; o; gate and up; down.
enum class FusedLinear { kQkv, kO, kGateUp, kDown };
inline constexpr int kNumFusedLinears = 4;
std::vector<Projection> PartsOf(FusedLinear linear);

struct PanelLayer {
  std::vector<float> input_norm;
  std::vector<float> post_attention_norm;
  std::vector<float> q_norm;  // empty without qk_norm
  std::vector<float> k_norm;
  std::array<PanelLinear, kNumFusedLinears> linears;
};

// Immutable once packed. Holds nothing of the ModelWeights but an untied
// embedding, so that those can be given back.
struct PanelModel {
  ModelConfig config;
  at::ScalarType dtype = at::kFloat;
  std::vector<PanelLayer> layers;
  std::vector<float> final_norm;
  PanelLinear head;
  at::Tensor embedding;  // undefined where the head is the embedding

  // What one token reads: all panels, in bytes.
  int64_t WeightBytes() const;
  // The embedding of a token, [hidden].
  void Embed(int32_t token, float* row) const;
};

// Takes as long as a copy of the weights. CPU tensors.
std::shared_ptr<const PanelModel> PackModel(const ModelWeights& weights);

struct PanelAdapter {
  std::vector<std::array<PanelLora, kNumFusedLinears>> layers;
};
// The memory of `recycled`, an adapter of the same model, is used again.
PanelAdapter PackAdapter(const Adapter& adapter, PanelAdapter recycled = {});

}  // namespace dapd
