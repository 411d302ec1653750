// The weights of a model as a GPU multiplies with them where no gradient is
// needed, decoding (generation/cuda) and scoring (packed_layer.h): q, k and v
// stacked, gate and up stacked, and the adapter inside.
//
// An adapter is in them in one of two forms:
//   kMerged   W = W0 + scale B A. Nothing more to read or to launch in a step.
//   kColumns  [W0, scale B] with as many more columns as the adapters of the
//             stacked projections have ranks; x is followed by t = x A^T.
// A float32 model merges. A bfloat16 one takes columns: rounding W0 + scale B A
// to bfloat16 gives W0 back wherever the update is below half a unit of W0's
// last place, 2^-9 of it, which early in training is nearly everywhere, so a
// merged policy would sample from the base while the trainer trains another.
// Columns keep the update to 2^-9 of itself, for about 5 % more bytes per step
// and four more launches per layer (docs/cuda.md). They also leave the base as
// it is, so that it stands in memory once, in them; merging needs it beside
// them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

enum class AdapterForm { kMerged, kColumns };

// The form for a model of that precision.
constexpr AdapterForm FormFor(at::ScalarType dtype) {
  return dtype == at::kFloat ? AdapterForm::kMerged : AdapterForm::kColumns;
}

// merged = base + scale * pair.b pair.a, in place of `merged`'s values.
using MergePair = std::function<void(const at::Tensor& base,
                                     const LoraPair& pair,
                                     double scale,
                                     const at::Tensor& merged)>;

// One of the four products of a layer.
struct PackedLinear {
  std::vector<Projection> parts;  // stacked, in this order
  at::Tensor weight;              // [out, in + lora]
  at::Tensor lora_a;              // [lora, in]; undefined if lora is 0
  at::Tensor bias;                // [out] or undefined
  int64_t in = 0;
  int64_t lora = 0;
};

class PackedWeights {
 public:
  // Takes the base over, layer by layer: with kColumns the projections' weights
  // in `weights` become views of the packed ones, and what held them before is
  // given back unless somebody else holds it, too; at most one layer is there
  // twice. With kMerged they are copied and stay. `lora`: what the adapters
  // look like that Apply will get, or null for none yet; matters only to
  // kColumns. `weights` must outlive this.
  PackedWeights(ModelWeights& weights,
                AdapterForm form,
                const LoraConfig* lora,
                MergePair merge);

  // Whether Apply takes this adapter (null: the base).
  bool Fits(const Adapter* adapter) const;
  // From now on the weights are those of `adapter`, null for the base. The
  // tensors stay where they are.
  void Apply(const Adapter* adapter);

  // By layer and group of LayerRecipe::Groups: qkv, o, gate_up, down.
  const std::vector<std::array<PackedLinear, 4>>& layers() const {
    return layers_;
  }

 private:
  void ApplyTo(int64_t layer, const Adapter* adapter, PackedLinear* linear);
  bool HasColumns(const ProjectionRecipe& projection) const;

  const ModelWeights& weights_;
  const AdapterForm form_;
  const MergePair merge_;
  int64_t rank_ = 0;                  // of the columns; 0 without
  std::vector<std::string> targets_;  // that have columns
  bool is_base_ = true;
  std::vector<std::array<PackedLinear, 4>> layers_;
};

}  // namespace dapd
