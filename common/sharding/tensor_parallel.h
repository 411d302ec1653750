// What a rank needs to compute a model together with others by the one decoder
// (common/model/reference/decoder.h): each has its own heads and its own
// columns of the MLP, and every layer takes two sums over the ranks.
#pragma once

#include "common/collective/device_group.h"
#include "common/model/reference/decoder_layer.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// This rank's part as the weights of a model of its own: ShardConfig's shape,
// and of every bias what this rank adds to the sums. Shares the tensors.
ModelWeights WeightsOfRank(const ShardedWeights& weights);

// In float32, whatever the dtype. `devices` must outlive it.
SumOverRanks SumOver(DeviceGroup& devices);

}  // namespace dapd
