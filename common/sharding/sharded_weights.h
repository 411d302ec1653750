// A rank's part of a frozen base, in the tensor-parallel layout.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/model/weights/weights.h"
#include "common/sharding/shard_layout.h"
#include "common/tensor/aten.h"

namespace dapd {

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

}  // namespace dapd
