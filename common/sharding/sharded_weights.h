// A frozen base split over ranks, in the tensor-parallel layout of Megatron-LM
// (Shoeybi et al. 2019). Q, K, V, gate and up are split by their outputs, O and
// down by their inputs, so that each rank computes whole heads and its own part
// of the MLP, and the partial results of O and of down add up to the layer's.
// Norms, biases, embedding and head are whole everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/device_group.h"
#include "common/model/spec/model_config.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct ShardLayout {
  int rank = 0;
  int size = 1;
};

// The dimension of a weight [out, in] that is split: 0 (outputs) or 1 (inputs).
int64_t SplitDimension(Projection projection);

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

// The adapter for ShardConfig's layers: B is split where outputs are, A where
// inputs are. Views of `adapter`.
Adapter ShardAdapter(const Adapter& adapter, const ShardLayout& layout);

// `shard.layers[i].weight` hold this rank's parts, contiguous; everything else
// is whole. `shard.config` is the whole model's.
struct ShardedWeights {
  ShardLayout layout;
  ModelWeights shard;
};

// Reads a model folder as LoadModelWeights does and keeps this rank's part of
// each tensor as it comes: the whole model is never in memory.
absl::StatusOr<std::shared_ptr<const ShardedWeights>> LoadShardedWeights(
    const std::string& folder,
    at::ScalarType dtype,
    at::Device device,
    const ShardLayout& layout);

// Layer `index` with whole weights, bit for bit those of an unsharded load, by
// one gather (DeviceGroup::AllGather). All ranks call it for the same layer. It
// holds one layer's weights and, while it runs, one of those that are split by
// inputs once more.
absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         DeviceGroup& devices);

}  // namespace dapd
