// The processes of one machine that compute a rollout worker's model together
// (rollout.tensor_parallel): this process, rank 0, which is the worker, and the
// processes that it starts. Each holds its share of every layer; on GPUs each
// takes the next of the GPUs that the worker sees. They live and die together:
// if a rank ends, the worker ends, its supervisor starts it again, and the
// running answers go to other workers, as after any loss.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/child_process.h"
#include "common/collective/collective.h"
#include "common/config/config.h"

namespace dapd {

class TensorRanks {
 public:
  // Starts ranks 1, 2, ... as this program with `arguments`, and waits until
  // all ranks are connected. Returns ABORTED if a rank ends earlier.
  static absl::StatusOr<std::unique_ptr<TensorRanks>> Start(
      const Config& config, const std::vector<std::string>& arguments);

  Collective& collective() { return *collective_; }

  // From now on ranks may end.
  void StopWatching() { watcher_ = std::jthread(); }

  // Ends this process because a rank is lost or does not answer: with
  // ExitCode::kRestart, or, if a rank crashed, with 128 plus the number of its
  // signal.
  [[noreturn]] static void EndWithRanks(const absl::Status& status);

 private:
  TensorRanks() = default;
  static void Watch(const std::vector<std::unique_ptr<ChildProcess>>& children,
                    const std::stop_token& stop);

  // Destroyed in reverse order: the watcher ends before the connection closes,
  // at which the other ranks end.
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::unique_ptr<Collective> collective_;
  std::jthread watcher_;
};

// The rank of a process that TensorRanks started.
struct TensorRank {
  int rank = 0;
  std::string rendezvous;
};

// In such a process: from now on a stop signal ends it only if rank 0 has sent
// the signal or has died. If a signal goes to all processes of a worker, as
// pkill and systemd do, rank 0 handles it: it lets answers end first, and needs
// this process for them.
void HeedRankZeroAlone();

// Connects to rank 0.
absl::StatusOr<std::unique_ptr<Collective>> JoinTensorRanks(
    const Config& config, const TensorRank& place);

}  // namespace dapd
