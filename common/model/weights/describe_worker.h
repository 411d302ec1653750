// A worker's description of the model that it serves.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config.h"
#include "common/model/weights/weights.h"
#include "common/rpc/transfer/served_policy.h"

namespace dapd {

// `service`: "rollout" or "teacher". Limits uploads to the safetensors size of
// a float32 adapter of rank `max_rank` on all projections. The caller sets
// max_in_flight.
WorkerDescription DescribeWorker(const std::string& service,
                                 const ModelWeights& weights,
                                 int64_t max_rank);

// Returns the text of WorkerDescription::precision of a rollout worker. It
// differs from the model's precision where keys and values are rounded, so that
// no trainer takes such a worker.
std::string SamplingPrecision(Precision model, KvPrecision kv);

}  // namespace dapd
