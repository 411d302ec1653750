// Multiplies by a decoder layer's packed weights (packed_weights.h), without a
// gradient: for prompts (generation/cuda/cuda_prefill.h) and a GPU's scoring
// (chunk_forward.h). There are four products instead of seven, and an adapter
// needs no copy of a weight. PlainProjections, which have a gradient, are the
// slow twin.
//
// Shapes: N rows.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/model/fast/layer_projections.h"
#include "common/model/fast/packed_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns the sum of `part`, float32, over the ranks that share a model, in the
// weights' dtype, with the same bits on every rank and in new memory. All ranks
// call it at the same places with the same shapes.
using SumOfParts = std::function<at::Tensor(const at::Tensor& part)>;

// Options of all layers of a pass.
struct PackedPass {
  // Rows of a product, a divisor of N; 0: all rows.
  int64_t block = 0;
  // Rows of a whole pass: each product gives the bits that it gives in a pass
  // of so many rows (pass_products.h); 0: LibTorch multiplies.
  int64_t whole = 0;
  // Whether the adapter that is applied to the weights takes part.
  bool with_adapter = true;
  // If the weights are a rank's share, sums the ranks' parts of the outputs of
  // `o` and `down`. It is empty for a whole model.
  SumOfParts sum = nullptr;
};

class PackedProjections final : public LayerProjections {
 public:
  // Both arguments must outlive this object. `linears` has the order of
  // LayerProduct.
  PackedProjections(const std::array<PackedLinear, kNumLayerProducts>& linears,
                    const PackedPass& pass)
      : linears_(linears), pass_(pass) {}

  int64_t RoomFor(LayerProduct product, const at::Tensor& like) const override;
  // The outputs are columns of one tensor. Copies an x without room.
  std::vector<at::Tensor> Multiply(LayerProduct product,
                                   const at::Tensor& x,
                                   at::Tensor* low_rank) const override;

 private:
  const std::array<PackedLinear, kNumLayerProducts>& linears_;
  const PackedPass& pass_;
};

}  // namespace dapd
