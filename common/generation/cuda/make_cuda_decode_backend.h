// Decides whether the CUDA backend decodes a model, and makes the backend.
#pragma once

#include <memory>

#include "common/collective/device_group.h"
#include "common/generation/cuda/cuda_decode_model.h"
#include "common/generation/decode_backend.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"

namespace dapd {

// Returns null and logs the reason if this build or the model's shape is not
// supported, or if adapters are merged and the GPU has no room for weights
// beside the base. LibTorch's operations then decode (aten_backend.h).
// Otherwise it releases `weights`: with columns for adapters they are in memory
// once.
std::unique_ptr<DecodeBackend> MakeCudaDecodeBackend(
    std::shared_ptr<const ModelWeights>& weights,
    const CudaDecodeOptions& options);

// Makes the backend for this rank's share, which it releases. `devices` is the
// group of all ranks, and `collective` theirs, too. If the build or the shape
// is not supported, it returns null on every rank.
std::unique_ptr<DecodeBackend> MakeSharedCudaDecodeBackend(
    std::shared_ptr<const ShardedWeights>& share,
    const std::shared_ptr<DeviceGroup>& devices,
    Collective& collective,
    const CudaDecodeOptions& options);

}  // namespace dapd
