// Defines how long `dapd run` and trainer.ranks_per_machine wait for a
// trainer's ranks at the end of an attempt.
#pragma once

#include "absl/time/time.h"

namespace dapd {

// The time for the other ranks to end once rank 0 is done.
inline constexpr absl::Duration kLastRankGrace = absl::Seconds(10);
// The time for the other ranks to say why they end once a rank is lost.
inline constexpr absl::Duration kLostRankGrace = absl::Seconds(8);
// The time after that for rank 0 to save the last whole step.
inline constexpr absl::Duration kSaveGrace = absl::Minutes(1);

}  // namespace dapd
