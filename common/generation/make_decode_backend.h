// Chooses the decode backend of a model.
#pragma once

#include <cstdint>
#include <memory>

#include "common/collective/device_group.h"
#include "common/generation/decode_backend.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"

namespace dapd {

struct DecodeBackendOptions {
  int64_t slots = 32;      // sequences that run side by side
  int64_t num_tokens = 0;  // ids the tokenizer knows; 0: the whole vocabulary
};

// The fastest backend that computes the model on the weights' device: of
// LibTorch's operations, with one line in the log that says why, where no
// faster one does (common/model/spec/executor_support.h). It keeps what it
// needs of `weights`, so a caller that lets go of them gives the rest back.
std::unique_ptr<DecodeBackend> MakeDecodeBackend(
    std::shared_ptr<const ModelWeights> weights,
    const DecodeBackendOptions& options);

// The same for a rank's share of a model that the ranks of `devices` compute
// together: of the same kind on all of them, which call it at the same time.
std::unique_ptr<DecodeBackend> MakeSharedDecodeBackend(
    std::shared_ptr<const ShardedWeights> share,
    std::unique_ptr<DeviceGroup> devices,
    const DecodeBackendOptions& options);

}  // namespace dapd
