// Several trainer ranks as processes of one container, each with a GPU of its
// own: their sums and gathered layers then go from GPU to GPU over the
// machine's links, while ranks in containers of their own, which see neither
// each other's GPUs nor memory, talk over the network.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/config/service_flags.h"

namespace dapd {

// `dapd-trainer --local-ranks COUNT`: of trainer.ranks ranks this process
// starts COUNT, those from trainer.rank x COUNT on, and waits for them; it is
// itself none, and trainer.rank counts such processes. The first one has the
// configured addresses, the next ones ports 10 further on each. A signal goes
// to all. One that fails ends the others, for ranks only go on together.
//   CONFIG     the ranks are not a multiple, or there are too few GPUs
//   otherwise  the exit code of the first rank that failed, kRestart of one
//              that was killed
absl::Status RunLocalRanks(const Config& config,
                           const ServiceFlags& flags,
                           int64_t count);

}  // namespace dapd
