// Frozen projections that read the same input (q, k, v; o; gate, up; down) with
// their unmerged LoRA pairs, forward and backward by hand.
//
// The A of a group are one matrix, so a token's x A^T is one product; B adds
// into the base projection's output and A into the input's gradient (beta = 1),
// so that no update is ever a tensor of its own. The base gets no gradient.
// The reference implementation is LoraLinear (lora.h) under autograd.
//
// On a GPU adding into an output of many rows costs more than a copy of the
// weights: 2 N out numbers against 2 in out. There x comes in memory with room
// for x A^T beside it (RoomFor), and a projection is one product, [x, scale x
// A^T] [W, B]^T, rounded once. W with its B is put together for each call.
//
// Shapes: N rows; in, out_i as the weights are stored, [out_i, in]; r rank, g
// projections of the group that have a pair.
#pragma once

#include <vector>

#include "common/model/reference/decoder_layer.h"
#include "common/tensor/aten.h"

namespace dapd {

class ProjectionGroup {
 public:
  // `lora` null: only the base. Nothing of the layer is copied but A.
  ProjectionGroup(const LayerWeights& weights,
                  const LoraLayer* lora,
                  double lora_scale,
                  std::vector<Projection> projections);

  // The columns that the memory of Forward's x should have behind its own, for
  // an x of as many rows as `like` and of its dtype and device; 0: none.
  int64_t RoomFor(const at::Tensor& like) const;

  // y_i = x W_i^T + bias_i + scale (x A_i^T) B_i^T, [N, out_i] in x's dtype. x
  // is contiguous, or has RoomFor behind every row.
  // `low_rank` becomes scale x A^T, [N, g r], which Backward needs; undefined
  // if no projection has a pair.
  std::vector<at::Tensor> Forward(const at::Tensor& x,
                                  at::Tensor* low_rank) const;

  // `grads` of the y_i, in order; `x` and `low_rank` of Forward. Sets the pairs
  // of this group in `gradients`, in the adapter's dtype. Returns the gradient
  // of x, [N, in], or nothing if `needs_input_gradient` is false.
  at::Tensor Backward(const std::vector<at::Tensor>& grads,
                      const at::Tensor& x,
                      const at::Tensor& low_rank,
                      bool needs_input_gradient,
                      LoraLayer* gradients) const;

 private:
  // Forward for an x with room.
  std::vector<at::Tensor> ForwardJoined(const at::Tensor& x,
                                        at::Tensor* low_rank) const;
  // [W_i, 0, B_i], where the zeros meet the pairs before.
  at::Tensor JoinedWeight(size_t i) const;

  // The dtype of the update's products: the adapter's on the CPU, where it is
  // exact; the base's on CUDA, where that is what the matrix units compute.
  at::ScalarType UpdateType(const at::Tensor& x) const;

  const LayerWeights& weights_;
  const LoraLayer* lora_;
  double scale_;
  std::vector<Projection> projections_;
  // For each projection its first column in `low_rank`, -1 without a pair.
  std::vector<int64_t> first_;
  at::Tensor a_;  // [g r, in]
};

}  // namespace dapd
