// The decoder computed by several ranks together: each its own heads and its
// own columns of the MLP, with two sums over the ranks a layer.
#pragma once

#include <functional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/device_group.h"
#include "common/model/reference/decoder.h"
#include "common/model/reference/kv_cache.h"
#include "common/model/weights/adapter.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Adds `values` up over all ranks, in place. Every rank calls it at the same
// place with the same shape.
using TensorSum = std::function<absl::Status(at::Tensor& values)>;

// In float32, whatever the dtype. `devices` must outlive it.
TensorSum SumOver(DeviceGroup& devices);

// ForwardHidden without gradients; every rank returns the same hidden states,
// equal to one process's but for the order of the sums. `adapter`: this rank's,
// as ShardAdapter gives it; null: the base.
absl::StatusOr<at::Tensor> ForwardHiddenSharded(const ShardedWeights& weights,
                                                const Adapter* adapter,
                                                const PackedTokens& tokens,
                                                const at::Tensor& rows,
                                                const TensorSum& sum);

// ForwardPrompt and ForwardTokens (decoder.h) over this rank's heads: caches
// made with ShardConfig. Every rank returns the same hidden states.
absl::StatusOr<at::Tensor> ForwardPromptSharded(const ShardedWeights& weights,
                                                const Adapter* adapter,
                                                const at::Tensor& ids,
                                                KvCache* cache,
                                                const TensorSum& sum);
absl::StatusOr<at::Tensor> ForwardTokensSharded(
    const ShardedWeights& weights,
    const Adapter* adapter,
    const at::Tensor& ids,
    std::span<KvCache* const> caches,
    const TensorSum& sum);

}  // namespace dapd
