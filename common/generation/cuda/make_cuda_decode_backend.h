// Whether a model is decoded by the CUDA backend, and the making of one.
#pragma once

#include <memory>

#include "common/collective/device_group.h"
#include "common/generation/cuda/cuda_decode_model.h"
#include "common/generation/decode_backend.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"

namespace dapd {

// Null, with the reason in the log, if this build or the model's shape is not
// supported, or if adapters are merged and the GPU has no room for weights
// beside the base. LibTorch's own operations then decode (aten_backend.h). Else
// lets go of `weights`: with columns for adapters they are in memory once.
std::unique_ptr<DecodeBackend> MakeCudaDecodeBackend(
    std::shared_ptr<const ModelWeights>& weights,
    const CudaDecodeOptions& options);

// The same for this rank's share, which it lets go of; `devices` are those of
// all ranks. Null, if the build or the shape is not supported, on every rank.
std::unique_ptr<DecodeBackend> MakeSharedCudaDecodeBackend(
    std::shared_ptr<const ShardedWeights>& share,
    const std::shared_ptr<DeviceGroup>& devices,
    const CudaDecodeOptions& options);

}  // namespace dapd
