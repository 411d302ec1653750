// Gathers the parts of a layer's weights from the ranks.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "common/collective/device_group.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"

namespace dapd {

// Returns layer `index` with whole weights, bit for bit equal to an unsharded
// load, by one gather (DeviceGroup::AllGather). All ranks call it for the same
// layer. The result holds one layer's weights; while the function runs, the
// weights that are split by inputs are held twice.
absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         DeviceGroup& devices);

}  // namespace dapd
