// How long `dapd run` and trainer.ranks_per_machine wait for a trainer's ranks
// at the end of an attempt.
#pragma once

#include "absl/time/time.h"

namespace dapd {

// Once rank 0 is done, for the other ranks to end.
inline constexpr absl::Duration kLastRankGrace = absl::Seconds(10);
// Once a rank is lost, for the other ranks to say why they end.
inline constexpr absl::Duration kLostRankGrace = absl::Seconds(8);
// After that, for rank 0 to save the last whole step.
inline constexpr absl::Duration kSaveGrace = absl::Minutes(1);

}  // namespace dapd
