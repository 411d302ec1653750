// The four products of a decoder layer with its weights. LayerPass
// (layer_pass.h) calls them; two classes compute them:
//   PlainProjections   (plain_projections.h): each projection by itself, with
//                      the adapter beside it; only they have a gradient.
//   PackedProjections  (packed_projections.h): stacked projections with the
//                      adapter inside, for a GPU's scoring and prompts.
// The bits of the two differ only in where an adapter's update is rounded and
// in the kernels that a GPU's library chooses for their shapes. Everything else
// in a layer is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tensor/aten.h"

namespace dapd {

// Projections that read the same input are one product. LayerRecipe::Groups and
// PackedWeights::layers() have the same order.
enum class LayerProduct {
  kQkv,     // q, k, v of the normed layer input
  kO,       // o of attention's result
  kGateUp,  // gate, up of the normed sum behind attention
  kDown,    // down of the gated product
};
inline constexpr size_t kNumLayerProducts = 4;

class LayerProjections {
 public:
  virtual ~LayerProjections() = default;

  // Returns how many columns the memory of Multiply's x should have behind its
  // own; 0: none. x A^T of an adapter is then written there, and x is not
  // copied. x has as many rows as `like` and its dtype and device.
  virtual int64_t RoomFor(LayerProduct product,
                          const at::Tensor& like) const = 0;

  // Returns the outputs of the product's projections, [N, out_i] in x's dtype,
  // which may be columns of one wider tensor. x [N, in] is contiguous or has
  // RoomFor behind every row. Projections with a gradient set `low_rank`, which
  // their Backward needs; other projections leave it unchanged.
  virtual std::vector<at::Tensor> Multiply(LayerProduct product,
                                           const at::Tensor& x,
                                           at::Tensor* low_rank) const = 0;
};

}  // namespace dapd
