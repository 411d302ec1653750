// RunSupervisor: the processes of one `dapd run`, from their start to the end
// of the run. Workers that die are started again; so are all trainers together,
// when one was killed or a rank was lost. Those that die again and again,
// twenty times without having lasted in between, end the run. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/base/child_process.h"

namespace dapd {

class RunSupervisor {
 public:
  // `lasting`: how long a process lives that was worth its start, so that a run
  // of weeks may lose any number.
  explicit RunSupervisor(absl::Duration lasting = absl::Minutes(10))
      : lasting_(lasting) {}
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
  struct Starts {
    absl::Time started;  // the last time
    int restarts = 0;    // since one that lasted
  };
  struct Worker {
    std::unique_ptr<ChildProcess> process;
    Starts starts;
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
  // Whether what has ended is worth another start, which is counted.
  bool MayStartAgain(Starts& starts) const;
  bool MayRestartTrainers(int code, bool asked_to_stop);
  absl::Status KeepAlive(Worker& worker);

  const absl::Duration lasting_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<ChildProcess>> trainers_;  // by rank
  std::optional<End> end_;  // as far as it is known before rank 0's
  Starts trainer_starts_;
};

}  // namespace dapd
