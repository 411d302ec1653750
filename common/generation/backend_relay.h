// A decode backend that several ranks compute together. Each rank has its own
// backend over its share of the model. Rank 0 sends each call of its backend to
// the others, which make the same calls in the same order, so that all take
// part in the same sums over the ranks. If one rank has no memory for a
// sequence, the sequence starts or grows on none; if one has no memory for an
// adapter, none takes it. An adapter's tensors reach the other ranks by one
// broadcast of their DeviceGroup, from one GPU to all others. The tokens that a
// step sampled travel with the next call; a rank that sampled other tokens
// returns DATA_LOSS, because its caches would no longer fit.
#pragma once

#include <memory>

#include "absl/status/status.h"

#include "common/collective/collective.h"
#include "common/collective/device_group.h"
#include "common/generation/decode_backend.h"

namespace dapd {

// Returns rank 0's backend: `own`, with every call relayed. Errors between the
// ranks are thrown as StatusError after a call of `on_lost`; the backend cannot
// be used afterwards. Its destructor ends FollowBackend on the other ranks.
// Adapters must be on the device of `devices`, the ranks' group. `collective`
// must outlive it.
std::unique_ptr<DecodeBackend> LeadBackend(std::unique_ptr<DecodeBackend> own,
                                           Collective& collective,
                                           std::shared_ptr<DeviceGroup> devices,
                                           OnRanksLost on_lost);

// Runs on the other ranks: makes rank 0's calls on `own` until rank 0's backend
// is destroyed. Adapters arrive on `device`. Returns the errors of the
// Collective and of the computation.
absl::Status FollowBackend(DecodeBackend& own,
                           at::Device device,
                           Collective& collective,
                           DeviceGroup& devices);

}  // namespace dapd
