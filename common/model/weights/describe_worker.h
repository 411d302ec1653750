// What a worker says of the model it serves.
#pragma once

#include <cstdint>
#include <string>

#include "common/model/weights/weights.h"
#include "common/rpc/transfer/served_policy.h"

namespace dapd {

// `service`: "rollout" or "teacher". Uploads are limited to what a float32
// adapter of rank `max_rank` on all projections takes as safetensors.
// max_in_flight is left to the caller.
WorkerDescription DescribeWorker(const std::string& service,
                                 const ModelWeights& weights,
                                 int64_t max_rank);

}  // namespace dapd
