// Rank 0 of several: serves RankService and holds one stream to each other
// rank.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/collective/rank_options.h"

namespace dapd {

// Listens at the rendezvous and blocks until every other rank has joined.
// One that leaves meanwhile may come again.
//   UNAVAILABLE  the port is in use, or ranks (named) did not come in time
//   CANCELLED    RankOptions::gives_up
absl::StatusOr<std::unique_ptr<Collective>> StartRankLeader(
    const RankOptions& options);

}  // namespace dapd
