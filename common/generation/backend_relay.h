// A decode backend that several ranks compute together. Each has a backend of
// its own over its share of the model; whatever rank 0's is asked to do, it
// tells the others to do as well, in the same order, so that all come to the
// same sums over the ranks. A sequence for which one of them has no memory
// starts, or grows, on none. What a step sampled travels with the next call,
// and a rank that sampled anything else says so (DATA_LOSS): its caches would
// no longer fit.
#pragma once

#include <memory>

#include "absl/status/status.h"

#include "common/collective/collective.h"
#include "common/generation/decode_backend.h"

namespace dapd {

// Rank 0's: `own`, with every call relayed. Errors between the ranks are
// StatusError; `on_lost` is called first, since the backend cannot be used
// after one. Its destructor lets the other ranks go. `collective` must outlive
// it.
std::unique_ptr<DecodeBackend> LeadBackend(std::unique_ptr<DecodeBackend> own,
                                           Collective& collective,
                                           OnRanksLost on_lost);

// The other ranks': does what rank 0 says with `own` until rank 0's backend is
// destroyed. Adapters come to `device`. Errors are the Collective's and those
// of the computation.
absl::Status FollowBackend(DecodeBackend& own,
                           at::Device device,
                           Collective& collective);

}  // namespace dapd
