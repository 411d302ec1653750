// Multiplies by a decoder layer's frozen projections with their unmerged LoRA
// pairs beside them, forward and backward by hand. The base gets no gradient.
// The reference implementation is LoraLinear (lora.h) under autograd.
//
// The A of projections that read the same input are one matrix, so a token's x
// A^T is one product. B adds into the base projection's output and A into the
// input's gradient (beta = 1), so no update is ever a tensor of its own.
//
// On a GPU adding into an output of many rows costs more than a copy of the
// weights: 2 N out numbers against 2 in out. There x comes in memory with room
// for x A^T beside it (RoomFor), and a projection is one product, [x, scale x
// A^T] [W, B]^T, rounded once. W and its B are put together for each call.
//
// Shapes: N rows; in, out_i as the weights are stored, [out_i, in]; r rank, g
// projections of a group that have a pair.
#pragma once

#include <array>
#include <vector>

#include "common/model/fast/layer_projections.h"
#include "common/model/reference/decoder_layer.h"
#include "common/tensor/aten.h"

namespace dapd {

// Projections that read the same input.
class ProjectionGroup {
 public:
  // `lora` null: only the base. Copies nothing of the layer but A.
  ProjectionGroup(const LayerWeights& weights,
                  const LoraLayer* lora,
                  double lora_scale,
                  std::vector<Projection> projections);

  // Implements LayerProjections::RoomFor.
  int64_t RoomFor(const at::Tensor& like) const;

  // Computes y_i = x W_i^T + bias_i + scale (x A_i^T) B_i^T, [N, out_i] in x's
  // dtype, contiguous. x is contiguous, or has RoomFor behind every row.
  // `low_rank` becomes scale x A^T, [N, g r], which Backward needs; it stays
  // undefined if no projection has a pair.
  std::vector<at::Tensor> Forward(const at::Tensor& x,
                                  at::Tensor* low_rank) const;

  // Takes the gradients `grads` of the y_i, in order, and `x` and `low_rank` of
  // Forward. Sets the pairs of this group in `gradients`, in the adapter's
  // dtype. Returns the gradient of x, [N, in]; undefined if
  // `needs_input_gradient` is false.
  at::Tensor Backward(const std::vector<at::Tensor>& grads,
                      const at::Tensor& x,
                      const at::Tensor& low_rank,
                      bool needs_input_gradient,
                      LoraLayer* gradients) const;

 private:
  // Implements Forward for an x with room for x A^T.
  std::vector<at::Tensor> ForwardJoined(const at::Tensor& x,
                                        at::Tensor* low_rank) const;
  // Returns [W_i, 0, B_i]; the zeros multiply the columns of earlier pairs.
  at::Tensor JoinedWeight(size_t i) const;

  // Returns the dtype of the update's products: the adapter's dtype on the CPU,
  // where it is exact; the base's dtype on CUDA, for the matrix units.
  at::ScalarType UpdateType(const at::Tensor& x) const;

  const LayerWeights& weights_;
  const LoraLayer* lora_;
  double scale_;
  std::vector<Projection> projections_;
  // The first column of each projection in `low_rank`; -1: it has no pair.
  std::vector<int64_t> first_;
  at::Tensor a_;  // [g r, in]
};

// The four groups of a layer.
class PlainProjections final : public LayerProjections {
 public:
  // `weights` and `lora` must outlive this object; `recipe` is the layer's.
  // `lora` null: only the base.
  PlainProjections(const LayerRecipe& recipe,
                   const LayerWeights& weights,
                   const LoraLayer* lora,
                   double lora_scale);

  int64_t RoomFor(LayerProduct product, const at::Tensor& like) const override {
    return Of(product).RoomFor(like);
  }
  std::vector<at::Tensor> Multiply(LayerProduct product,
                                   const at::Tensor& x,
                                   at::Tensor* low_rank) const override {
    return Of(product).Forward(x, low_rank);
  }

  // Calls ProjectionGroup::Backward of the product's group.
  at::Tensor Backward(LayerProduct product,
                      const std::vector<at::Tensor>& grads,
                      const at::Tensor& x,
                      const at::Tensor& low_rank,
                      bool needs_input_gradient,
                      LoraLayer* gradients) const {
    return Of(product).Backward(
        grads, x, low_rank, needs_input_gradient, gradients);
  }

 private:
  const ProjectionGroup& Of(LayerProduct product) const {
    return groups_[static_cast<size_t>(product)];
  }

  std::array<ProjectionGroup, kNumLayerProducts> groups_;
};

}  // namespace dapd
