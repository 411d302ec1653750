// Lets several ranks compute a model together with the one decoder
// (common/model/reference/decoder.h): each rank has its own heads and its own
// columns of the MLP, and every layer takes two sums over the ranks.
#pragma once

#include "common/collective/device_group.h"
#include "common/model/reference/decoder_layer.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns this rank's part as the weights of a smaller model: ShardConfig's
// shape, and each bias as this rank's summand. The tensors are shared.
ModelWeights WeightsOfRank(const ShardedWeights& weights);

// Returns a function that sums in float32, whatever the dtype. `devices` must
// outlive it.
SumOverRanks SumOver(DeviceGroup& devices);

}  // namespace dapd
