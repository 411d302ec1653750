// Brings the parts of a layer's weights together.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "common/collective/device_group.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"

namespace dapd {

// Layer `index` with whole weights, bit for bit those of an unsharded load, by
// one gather (DeviceGroup::AllGather). All ranks call it for the same layer. It
// holds one layer's weights and, while it runs, one of those that are split by
// inputs once more.
absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         DeviceGroup& devices);

}  // namespace dapd
