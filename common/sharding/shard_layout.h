// Which part of a model each of several ranks holds: the tensor-parallel layout
// of Megatron-LM (Shoeybi et al. 2019). The recipe says of each projection
// (spec/layer_recipe.h) whether it is split by its outputs (q, k, v, gate, up)
// or by its inputs (o, down), so that each rank computes whole heads and its
// own part of the MLP, and the partial results of o and of down add up to the
// layer's. Norms, biases, embedding and head are whole everywhere.
#pragma once

#include "absl/status/status.h"

#include "common/model/spec/model_config.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/aten.h"

namespace dapd {

struct ShardLayout {
  int rank = 0;
  int size = 1;
};

// The dimension of a weight [out, in] that is split: 0 (outputs) or 1 (inputs).
int64_t SplitDimension(const ProjectionRecipe& projection);

// INVALID_ARGUMENT, naming the number, if heads, key-value heads or the MLP's
// width cannot be divided by `layout.size`, or the rank is not in range.
absl::Status CheckShardLayout(const ModelConfig& config,
                              const ShardLayout& layout);

// The part of `whole` that `layout.rank` holds, without a copy.
at::Tensor ShardOf(const at::Tensor& whole,
                   int64_t dimension,
                   const ShardLayout& layout);

// What one rank computes with: its share of the heads and of the MLP.
ModelConfig ShardConfig(const ModelConfig& config, const ShardLayout& layout);

// The adapter of `config`'s model for ShardConfig's layers: B is split where
// outputs are, A where inputs are. Views of `adapter`.
Adapter ShardAdapter(const Adapter& adapter,
                     const ModelConfig& config,
                     const ShardLayout& layout);

}  // namespace dapd
