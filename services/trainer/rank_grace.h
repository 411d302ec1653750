// How long a trainer's ranks are waited for at the end of an attempt, by those
// who start them: `dapd run` and trainer.ranks_per_machine.
#pragma once

#include "absl/time/time.h"

namespace dapd {

// For the others to end, once rank 0 is done.
inline constexpr absl::Duration kLastRankGrace = absl::Seconds(10);
// For the others to say why they end, once one is lost.
inline constexpr absl::Duration kLostRankGrace = absl::Seconds(8);
// For rank 0 then to save the last whole step.
inline constexpr absl::Duration kSaveGrace = absl::Minutes(1);

}  // namespace dapd
