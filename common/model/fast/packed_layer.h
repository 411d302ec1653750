// A decoder layer through packed weights (packed_weights.h), without a
// gradient: the way of prompts (generation/cuda/cuda_prefill.h) and of a GPU's
// scoring (chunk_forward.h). Four products instead of seven, and no copy of a
// weight for an adapter; LayerPass (layer_pass.h), which has the gradient, is
// the slow twin.
//
// Shapes: N rows, H query heads, K key-value heads, D head_dim.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "common/model/fast/layer_pass.h"
#include "common/model/fast/packed_weights.h"
#include "common/model/rope.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// What `part`, float32, of each of the ranks that share a model adds up to, in
// the weights' dtype and the same everywhere; every rank calls it at the same
// places with the same shapes.
using SumOfParts = std::function<at::Tensor(const at::Tensor& part)>;

// How the layers of a pass are computed.
struct PackedPass {
  // Rows of a product, of which N is a multiple; 0: all.
  int64_t block = 0;
  // Of a whole pass, as which all N rows are multiplied (pass_products.h); 0:
  // by LibTorch.
  int64_t whole = 0;
  // By the adapter that is applied to the weights; else by the base alone.
  bool with_adapter = true;
  // Where the weights are a rank's share: of its parts of what `o` and `down`
  // give, the sum over the ranks. Else empty.
  SumOfParts sum = nullptr;
};

// What goes from layer to layer, [N, hidden]: x + delta. The next norm adds
// them while it reads them.
struct ResidualStream {
  at::Tensor x;
  at::Tensor delta;  // undefined: nothing to add

  // The norm of the sum, with `room` (layer_math.h); the sum is x then.
  at::Tensor Norm(const at::Tensor& weight, double eps, int64_t room = 0);
};

class PackedLayer {
 public:
  // All must outlive it. `linears`: qkv, o, gate_up, down; of `weights` only
  // the norms are read.
  PackedLayer(const ModelConfig& config,
              const LayerWeights& weights,
              const std::array<PackedLinear, 4>& linears,
              const RotaryAngles& angles,
              const PackedPass& pass)
      : config_(config),
        weights_(weights),
        linears_(linears),
        angles_(angles),
        pass_(pass) {}

  // `attend` gets keys [N, K, D] and values, whose rows are parts of wider
  // ones.
  void Forward(Attend attend, ResidualStream* stream) const;

 private:
  // Columns of an adapter in `linear` that are multiplied with.
  int64_t Columns(const PackedLinear& linear) const;
  // [x, x A^T] W^T + bias. x [N, in], best in memory with room for x A^T.
  at::Tensor Multiply(const PackedLinear& linear,
                      const at::Tensor& x,
                      const SumOfParts& sum = nullptr) const;
  at::Tensor Attended(Attend attend, ResidualStream* stream) const;
  at::Tensor Gated(ResidualStream* stream) const;

  const ModelConfig& config_;
  const LayerWeights& weights_;
  const std::array<PackedLinear, 4>& linears_;
  const RotaryAngles& angles_;
  const PackedPass& pass_;
};

}  // namespace dapd
