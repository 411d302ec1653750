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
  int64_t num_tokens = 0;  // ids that the tokenizer knows; 0: all
  // On a GPU: CudaDecoderSpec. Benchmarks compare with it; no service sets it.
  bool bulk_products = false;
  // Keys and values in 8 bits (common/kernels/float8.h), of bfloat16 models. A
  // GPU's memory then holds twice as many; LibTorch's operations, which also
  // decode on a CPU then, only round them.
  bool kv_float8 = false;
};

// Makes the fastest backend that computes the model on the weights' device. If
// only LibTorch's operations do, one line in the log says why
// (common/model/spec/executor_support.h). The backend keeps what it needs of
// `weights`; the rest is freed when the caller releases them.
std::unique_ptr<DecodeBackend> MakeDecodeBackend(
    std::shared_ptr<const ModelWeights> weights,
    const DecodeBackendOptions& options);

// Makes the backend for a rank's share of a model that the ranks of `devices`
// compute together. All ranks call it at the same time and get the same kind of
// backend. `collective`, of the same ranks, must outlive it.
std::unique_ptr<DecodeBackend> MakeSharedDecodeBackend(
    std::shared_ptr<const ShardedWeights> share,
    std::shared_ptr<DeviceGroup> devices,
    Collective& collective,
    const DecodeBackendOptions& options);

}  // namespace dapd
