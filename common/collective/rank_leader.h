// The Collective of rank 0 of several: it serves RankService and holds one
// stream to each other rank.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/collective/rank_options.h"

namespace dapd {

// Listens at the rendezvous and blocks until every other rank has joined. A
// rank that leaves meanwhile may come again.
//   UNAVAILABLE  the port is in use, or ranks, which the message names, did not
//                join in time
//   CANCELLED    RankOptions::gives_up returned true
absl::StatusOr<std::unique_ptr<Collective>> StartRankLeader(
    const RankOptions& options);

}  // namespace dapd
