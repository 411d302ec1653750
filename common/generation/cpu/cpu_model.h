// A model and an adapter in the form that CpuDecoder computes with.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/generation/cpu/cpu_linear.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Four products per layer, in the order of LayerRecipe::Groups: q, k and v; o;
// gate and up; down.
enum class FusedLinear { kQkv, kO, kGateUp, kDown };
inline constexpr int kNumFusedLinears = 4;

struct CpuLayer {
  std::vector<float> input_norm;
  std::vector<float> post_attention_norm;
  std::vector<float> q_norm;  // empty: no norm
  std::vector<float> k_norm;
  std::array<CpuLinear, kNumFusedLinears> linears;
};

// Immutable once packed. Holds nothing of the ModelWeights but an untied
// embedding, so that those can be given back.
struct CpuModel {
  ModelConfig config;
  at::ScalarType dtype = at::kFloat;
  std::vector<CpuLayer> layers;
  std::vector<float> final_norm;
  CpuLinear head;
  at::Tensor embedding;  // undefined where the head is the embedding

  // What one token reads: all panels, in bytes.
  int64_t WeightBytes() const;
  // The embedding of a token, [hidden].
  void Embed(int32_t token, float* row) const;
};

// Takes as long as a copy of the weights. CPU tensors.
std::shared_ptr<const CpuModel> PackModel(const ModelWeights& weights);

struct CpuAdapter {
  std::vector<std::array<CpuLora, kNumFusedLinears>> layers;
};
// `adapter` of the model of `config`. The memory of `recycled`, an adapter of
// the same model, is used again.
CpuAdapter PackAdapter(const Adapter& adapter,
                       const ModelConfig& config,
                       CpuAdapter recycled = {});

}  // namespace dapd
