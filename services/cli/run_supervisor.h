// RunSupervisor: the processes of one `dapd run`, from their start to the end
// of the run. Workers that die are started again; so are all trainers together,
// when one was killed or a rank was lost. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"

#include "common/base/child_process.h"

namespace dapd {

class RunSupervisor {
 public:
  // Starts a rollout worker or teacher.
  absl::Status AddWorker(std::unique_ptr<ChildProcess> worker);
  // The next trainer rank, to be started by Follow.
  void AddTrainer(std::unique_ptr<ChildProcess> trainer);

  // Starts the trainers and blocks until they have ended. An error carries the
  // exit code of the process that ended the run, and its words where they are
  // in a log of its own; rank 0 has saved the last whole step by then, if it
  // could within a minute. `look` is called several times a second. The first
  // signal (common/base/stop_requests.h) tells the trainers to stop, for which
  // rank 0 may take as long as it needs; after a second one it returns
  // CANCELLED at once.
  absl::Status Follow(const std::function<void()>& look);

 private:
  struct Worker {
    std::unique_ptr<ChildProcess> process;
    int restarts = 0;
  };

  // The trainer that ended the run or its attempt, and its exit code.
  struct End {
    const ChildProcess* trainer;
    int code;
  };

  absl::Status StartTrainers();
  // None while the run goes on; once asked to stop, while rank 0 does.
  std::optional<End> PollTrainers(bool asked_to_stop);
  void StopTrainers(bool is_done);
  bool MayRestartTrainers(int code, bool asked_to_stop);
  absl::Status KeepAlive(Worker& worker);

  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<ChildProcess>> trainers_;  // by rank
  std::optional<End> end_;  // as far as it is known before rank 0's
  int trainer_restarts_ = 0;
};

}  // namespace dapd
