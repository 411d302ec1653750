// The Collective of a rank other than 0: one stream to rank 0.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/collective/rank_options.h"

namespace dapd {

// Blocks until rank 0 has accepted this rank. If rank 0 says that the run is
// over (EndedJob), it waits for a new run without a time limit.
//   UNAVAILABLE          rank 0 cannot be reached in time, or it still has a
//                        connection of this rank
//   FAILED_PRECONDITION  the rendezvous belongs to another job, or rank 0 has
//                        another kind of device
//   CANCELLED            RankOptions::gives_up returned true
absl::StatusOr<std::unique_ptr<Collective>> JoinRankLeader(
    const RankOptions& options);

}  // namespace dapd
