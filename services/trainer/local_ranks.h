// The ranks of one machine (trainer.ranks_per_machine), as processes of their
// own that this one starts: on GPUs each has the next one of those that are
// here, and sees no other. Rank by rank the ports of trainer.listen and
// metrics.trainer_listen are 10 further on.
//
// They live and die together, since a job that lost a rank starts again from
// its newest checkpoint with all of them: whoever keeps this process running
// starts it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/rpc/server/shutdown_signal.h"

namespace dapd {

// What the process of one rank is started with.
struct LocalRank {
  int64_t rank = 0;
  std::vector<std::string> overrides;    // --set
  std::vector<std::string> environment;  // "NAME=value"
};

// The ranks of this machine. `config`: of LoadConfig, with ranks_per_machine
// above 0. `gpus`: those that this process sees, as CUDA_VISIBLE_DEVICES names
// them. Of a run that has finished, where its folder is here, only the first:
// it has nothing left to do. An error (kConfig) if there are fewer GPUs than
// ranks.
absl::StatusOr<std::vector<LocalRank>> PlanLocalRanks(
    const Config& config, const std::vector<std::string>& gpus);

// Of several ranks that ended, the code that says most: why one of them failed
// before that others missed it (75), and 75 for one that was killed. One that
// crashed failed: its code is 128 plus the number of its signal.
int CodeOfRanks(const std::vector<int>& codes);

// Runs this program once for each rank, and returns when all have ended: OK if
// rank 0 is here and done, or if all are; else with the exit code of
// CodeOfRanks. A rank that fails ends the others, for which rank 0, which
// saves, has a minute; SIGTERM or SIGINT is passed on to them. Where rank 0 is
// here it records and tells the run's end for it (AttemptEnd).
absl::Status RunLocalRanks(const std::string& config_path,
                           const std::vector<std::string>& overrides,
                           const Config& config,
                           ShutdownSignal& signal);

}  // namespace dapd
