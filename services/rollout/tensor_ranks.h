// The processes of one machine that compute a rollout worker's model together
// (rollout.tensor_parallel): this one, rank 0, which is the worker, and those
// that it starts. Each holds its share of every layer; on GPUs each takes the
// next one of those that the worker sees. They live and die together: a rank
// that ends takes the worker with it, whoever keeps workers running starts it
// again, and the answers under way go to other workers, as always.
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
  // all are connected. ABORTED if one of them ends before.
  static absl::StatusOr<std::unique_ptr<TensorRanks>> Start(
      const Config& config, const std::vector<std::string>& arguments);

  Collective& collective() { return *collective_; }

  // From now on ranks may end.
  void StopWatching() { watcher_ = std::jthread(); }

  // Ends this process, because a rank is lost or does not answer: with
  // ExitCode::kRestart, or, where a rank crashed, with 128 plus the number of
  // its signal.
  [[noreturn]] static void EndWithRanks(const absl::Status& status);

 private:
  TensorRanks() = default;
  static void Watch(const std::vector<std::unique_ptr<ChildProcess>>& children,
                    const std::stop_token& stop);

  // Destroyed from the last one on: nobody watches when the connection goes,
  // and with it the others end.
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::unique_ptr<Collective> collective_;
  std::jthread watcher_;
};

// In one of the processes that TensorRanks started: which one it is.
struct TensorRank {
  int rank = 0;
  std::string rendezvous;
};

// There: from here on a signal that asks this process to stop ends it if rank 0
// has sent it, or has died. What tells all processes of a worker, as pkill and
// systemd do, is for rank 0 to heed, which lets answers end before and needs
// this process for them.
void HeedRankZeroAlone();

// Connects to rank 0.
absl::StatusOr<std::unique_ptr<Collective>> JoinTensorRanks(
    const Config& config, const TensorRank& place);

}  // namespace dapd
