// One rank's part of a frozen base, in tensor-parallel layout.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/model/weights/weights.h"
#include "common/sharding/shard_layout.h"
#include "common/tensor/aten.h"

namespace dapd {

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

}  // namespace dapd
