// Brings the parts of a layer's weights together for as long as the layer is
// computed: training and scoring with a base of which each rank keeps a part.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "torch/torch.h"

#include "common/collective/collective.h"
#include "common/model/weights.h"
#include "common/sharding/sharded_weights.h"

namespace dapd {

// From each rank's contiguous `part` (same shape everywhere) the parts of all
// ranks, [size, part...], by rank. Every rank calls it at the same place.
using TensorAllGather =
    std::function<absl::StatusOr<at::Tensor>(const at::Tensor& part)>;

// Over a Collective, through host memory. `collective` must outlive it.
TensorAllGather HostAllGather(Collective& collective);

// Layer `index` with whole weights, bit for bit those of an unsharded load. All
// ranks call it for the same layer. It holds one layer's weights and, while it
// runs, the largest of them once more.
absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         const TensorAllGather& all_gather);

}  // namespace dapd
