// A frozen base split over ranks, in the tensor-parallel layout of Megatron-LM
// (Shoeybi et al. 2019). The recipe (spec/layer_recipe.h) says of each
// projection whether it is split by its outputs (q, k, v, gate, up) or by its
// inputs (o, down). So each rank computes whole heads and its own part of
// the MLP, and the partial results of O and of down add up to the layer's
// results. Norms, biases, embedding and head are whole on every rank.
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

// Returns the dimension of a weight [out, in] that is split: 0 (outputs) or 1
// (inputs).
int64_t SplitDimension(const ProjectionRecipe& projection);

// Returns INVALID_ARGUMENT, with the number in the message, if `layout.size`
// does not divide the heads, the key-value heads or the MLP's width, or if the
// rank is out of range.
absl::Status CheckShardLayout(const ModelConfig& config,
                              const ShardLayout& layout);

// Returns the part of `whole` that `layout.rank` holds, without a copy.
at::Tensor ShardOf(const at::Tensor& whole,
                   int64_t dimension,
                   const ShardLayout& layout);

// Returns the configuration that one rank computes with: its share of the heads
// and of the MLP.
ModelConfig ShardConfig(const ModelConfig& config, const ShardLayout& layout);

// Returns the adapter for ShardConfig's layers: B is split if the projection is
// split by outputs, A if by inputs. The result consists of views of `adapter`.
Adapter ShardAdapter(const Adapter& adapter,
                     const ModelConfig& config,
                     const ShardLayout& layout);

// `shard.layers[i].weight` holds this rank's parts, contiguous; everything else
// is whole. `shard.config` describes the whole model.
struct ShardedWeights {
  ShardLayout layout;
  ModelWeights shard;
};

// Reads a model folder like LoadModelWeights and keeps this rank's part of each
// tensor as it is read, so the whole model is never in memory.
absl::StatusOr<std::shared_ptr<const ShardedWeights>> LoadShardedWeights(
    const std::string& folder,
    at::ScalarType dtype,
    at::Device device,
    const ShardLayout& layout);

// Returns layer `index` with whole weights, bit for bit equal to an unsharded
// load, by one gather (DeviceGroup::AllGather). All ranks call it for the same
// layer. While the function runs, one weight at a time that is split by inputs
// is held twice.
absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         DeviceGroup& devices);

}  // namespace dapd
