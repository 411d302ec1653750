// A rank other than 0: one stream to rank 0.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/collective/rank_options.h"

namespace dapd {

// Blocks until rank 0 has taken this rank in. Where rank 0 says that the run is
// over (EndedJob) it waits without an end, for another beginning.
//   UNAVAILABLE          rank 0 cannot be reached in time, or this rank was
//                        there already all the time
//   FAILED_PRECONDITION  it is another job
//   CANCELLED            RankOptions::gives_up
absl::StatusOr<std::unique_ptr<Collective>> JoinRankLeader(
    const RankOptions& options);

}  // namespace dapd
