// RunSupervisor: the processes of one `dapd run`, from their start to the end
// of the run. Workers that die are started again, and all trainers together if
// one was killed or crashed or a rank was lost. Restarts decides when and how
// often: a process that crashes three times in a row without work in between
// (ChildProcess::HasWorked: a worker has served an answer or a score, rank 0
// has recorded a step that no earlier start had) ends the run with exit code 1.
// Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/child_process.h"
#include "services/cli/restarts.h"

namespace dapd {

class RunSupervisor {
 public:
  // Returns why rank 0 ended with `code`, in its own words; empty if it left
  // none.
  using TrainersWord = std::function<std::string(int code)>;

  explicit RunSupervisor(
      const Restarts::Options& restarts = {},
      TrainersWord trainers_word = [](int /*code*/) { return ""; })
      : restart_options_(restarts),
        trainers_word_(std::move(trainers_word)),
        trainer_restarts_(restarts) {}
  // Starts a rollout worker or teacher.
  absl::Status AddWorker(std::unique_ptr<ChildProcess> worker);
  // Adds the next trainer rank, which Follow starts.
  void AddTrainer(std::unique_ptr<ChildProcess> trainer);

  // Starts the trainers and blocks until they have ended. The error says why,
  // for the last line, outcome.json and the webhook:
  //   a process ended by itself    its own words, or the end of its log; its
  //                                exit code
  //   a process was killed or      its name and the cause (crash_text.h), once
  //   crashed too often            it is not started again; kInternal
  //   the trainer gave up while a  the worker's end and then the trainer's
  //   worker kept ending           words; kInternal
  // By then rank 0 has saved the last whole step, if it could within a minute.
  // `look` is called several times a second. The first signal
  // (common/base/stop_requests.h) tells the trainers to stop, for which rank 0
  // may take any time; after a second signal it returns CANCELLED at once.
  absl::Status Follow(const std::function<void()>& look);

 private:
  struct Worker {
    std::unique_ptr<ChildProcess> process;
    Restarts restarts;
    std::optional<absl::Time> next_start = {};  // unless it runs
    int last_code = 0;                          // of its last end
  };

  // The trainer that ended the run or its attempt, and its exit code.
  struct End {
    const ChildProcess* trainer;
    int code;
  };

  absl::Status StartTrainers();
  // Returns nothing while the run continues or, after a request to stop, while
  // rank 0 lives.
  std::optional<End> PollTrainers(bool asked_to_stop);
  void StopTrainers(bool is_done);
  // Returns whether to start the trainers again after `end`, and sets the time.
  bool MayRestartTrainers(const End& end, bool asked_to_stop);
  absl::Status WhyItEnded(const End& end, bool asked_to_stop);
  // Returns the error with the trainer's own words.
  absl::Status FailureOf(const End& end) const;
  // Returns the workers that keep ending, and how; empty if no worker keeps
  // ending.
  absl::StatusOr<std::string> FatesOfWorkers();
  // Notes whether the worker has ended; returns an error if another start is
  // useless.
  static absl::Status Look(Worker& worker);
  // Starts an ended worker again once its pause is over.
  static absl::Status KeepAlive(Worker& worker);

  const Restarts::Options restart_options_;
  const TrainersWord trainers_word_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<ChildProcess>> trainers_;  // by rank
  std::optional<End> end_;  // known before rank 0 has ended
  Restarts trainer_restarts_;
  std::optional<absl::Time> next_trainer_start_;  // unless they run
};

}  // namespace dapd
