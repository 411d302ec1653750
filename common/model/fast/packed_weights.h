// The weights of a model for a GPU that needs no gradient, in decoding
// (generation/cuda) and scoring (packed_projections.h): q, k and v are stacked,
// gate and up are stacked, and the adapter is inside.
//
// The adapter is inside in one of two forms:
//   kMerged   W = W0 + scale B A. A step reads and launches nothing more.
//   kColumns  [W0, scale B], with as many more columns as the adapters of the
//             stacked projections have ranks; x is followed by t = x A^T.
// A float32 model merges. A bfloat16 model takes columns: rounding W0 + scale B
// A to bfloat16 gives W0 back wherever the update is below half a unit of the
// last place of W0, 2^-9 of it. Early in training this is so nearly everywhere,
// and a merged policy would sample from the base while the trainer trains
// another policy. Columns keep the update to 2^-9 of itself, for about 5 % more
// bytes per step and four more launches per layer (docs/cuda.md). Columns also
// leave the base unchanged, so it is in memory only once; merging needs a
// second copy.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/model/fast/layer_projections.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

enum class AdapterForm { kMerged, kColumns };

// Returns the form for a model of precision `dtype`.
constexpr AdapterForm FormFor(at::ScalarType dtype) {
  return dtype == at::kFloat ? AdapterForm::kMerged : AdapterForm::kColumns;
}

// Writes base + scale * pair.b pair.a into `merged`.
using MergePair = std::function<void(const at::Tensor& base,
                                     const LoraPair& pair,
                                     double scale,
                                     const at::Tensor& merged)>;

// One of the four products of a layer.
struct PackedLinear {
  std::vector<Projection> parts;  // stacked, in this order
  std::vector<int64_t> rows;      // rows of `weight` per part
  at::Tensor weight;              // [out, in + lora]
  at::Tensor lora_a;              // [lora, in]; undefined if lora is 0
  at::Tensor bias;                // [out] or undefined
  int64_t in = 0;
  int64_t lora = 0;
};

class PackedWeights {
 public:
  // Takes the base over, layer by layer. With kColumns the projections' weights
  // in `weights` become views of the packed weights, and their old memory is
  // released unless another owner holds it; at most one layer is in memory
  // twice. With kMerged they are copied and stay. `lora` is the shape of the
  // adapters that Apply will get; null: none yet. Only kColumns reads it.
  // `weights` must outlive this object.
  PackedWeights(ModelWeights& weights,
                AdapterForm form,
                const LoraConfig* lora,
                MergePair merge);

  // Returns whether Apply accepts `adapter` (null: the base).
  bool Fits(const Adapter* adapter) const;
  // Makes the weights those with `adapter`; null: the base. The tensors keep
  // their memory.
  void Apply(const Adapter* adapter);

  // Returns the weights by layer, in the order of LayerProduct
  // (layer_projections.h).
  const std::vector<std::array<PackedLinear, kNumLayerProducts>>& layers()
      const {
    return layers_;
  }

 private:
  void ApplyTo(int64_t layer, const Adapter* adapter, PackedLinear* linear);
  bool HasColumns(const ProjectionRecipe& projection) const;

  const ModelWeights& weights_;
  const AdapterForm form_;
  const MergePair merge_;
  int64_t rank_ = 0;                  // columns per target; 0: no columns
  std::vector<std::string> targets_;  // projections with columns
  bool is_base_ = true;
  std::vector<std::array<PackedLinear, kNumLayerProducts>> layers_;
};

}  // namespace dapd
