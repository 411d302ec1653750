// The ranks of one machine (trainer.ranks_per_machine), which this process
// starts as processes of their own. On GPUs each rank sees one GPU, the next of
// this process' GPUs. The ports of trainer.listen and metrics.trainer_listen
// grow by 10 from rank to rank.
//
// The ranks live and die together, since a job that lost a rank starts again
// from its newest checkpoint with all ranks: the supervisor of this process
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

// The command line and environment of one rank's process.
struct LocalRank {
  int64_t rank = 0;
  std::vector<std::string> overrides;    // --set
  std::vector<std::string> environment;  // "NAME=value"
};

// Returns the ranks of this machine. `config`: from LoadConfig, with
// ranks_per_machine above 0. `gpus`: the GPUs that this process sees, as
// CUDA_VISIBLE_DEVICES names them. If the run has finished and its folder is
// here, returns only the first rank, because there is nothing left to do.
// Returns an error (kConfig) if there are fewer GPUs than ranks.
absl::StatusOr<std::vector<LocalRank>> PlanLocalRanks(
    const Config& config, const std::vector<std::string>& gpus);

// Returns the most telling exit code of ranks that ended: why a rank failed,
// rather than that another rank missed it (75). A rank that was killed counts
// as 75, and a rank that crashed as 128 plus the number of its signal.
int CodeOfRanks(const std::vector<int>& codes);

// Runs this program once for each rank, and returns when all have ended: OK if
// rank 0 runs here and is done, or if all ranks are done; otherwise an error
// with the exit code of CodeOfRanks. A rank that fails ends the others; rank 0
// has a minute to end, because it saves. SIGTERM and SIGINT are passed on to
// the ranks. If rank 0 runs here, this process records and tells the run's end
// for it (AttemptEnd).
absl::Status RunLocalRanks(const std::string& config_path,
                           const std::vector<std::string>& overrides,
                           const Config& config,
                           ShutdownSignal& signal);

}  // namespace dapd
