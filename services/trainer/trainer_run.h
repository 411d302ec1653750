// TrainerRun: everything a run needs besides its workers, loaded and checked
// before any worker is asked. Hides LibTorch from main.cc, which sees gRPC.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/config/load_config.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "services/trainer/record/run_displays.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

class GradingDesk;
class Timeline;
struct LoraConfig;

class TrainerRun {
 public:
  // Reads model, tokenizer, template and data; refuses or leaves out problems
  // whose views are too long (ApplyViewLimits); makes the run folder, or goes
  // on from its newest checkpoint. Waits for GPU memory that another process
  // holds; `wait_for_stop` as in AwaitGpuMemory.
  //
  // A rank other than 0 (trainer.rank) has no run folder: Train gets its policy
  // from rank 0.
  static absl::StatusOr<std::unique_ptr<TrainerRun>> Load(
      const LoadedConfig& loaded,
      const RunDisplays& displays,
      const std::function<bool(absl::Duration)>& wait_for_stop);
  ~TrainerRun();

  // Returns the weights that a worker must have loaded to serve this run.
  ExpectedWorker ExpectedWorkers() const;
  // Returns the same for the workers of each further teacher, by its name.
  std::map<std::string, ExpectedWorker> ExpectedTeachers() const;

  // Returns the SHA-256 of everything that the ranks must agree on
  // (RankIdentity).
  std::string Identity() const;
  // Returns the device that all ranks must have (RankDevice of common/gpus).
  std::string Device() const;

  // Blocks until the end, with the errors of TrainerLoop::Run, and writes
  // report.html however the run ends. `wait_for_stop` blocks for at most the
  // given time; true once the run is to stop. `timeline`: null for none.
  // `grader`: null for the built-in grader.
  absl::Status Train(RolloutClient& rollouts,
                     TeacherClient& teachers,
                     Collective& collective,
                     Timeline* timeline,
                     GradingDesk* grader,
                     std::function<bool(absl::Duration)> wait_for_stop);

  // Writes into the run folder how this attempt ended (run_outcome.h); logs it
  // if that fails.
  void RecordOutcome(const absl::Status& outcome) const;

 private:
  absl::Status OpenFolder(const LoraConfig& lora);
  // Begins to copy the run if checkpoint.copy_to is set.
  void StartCopier();
  absl::Status SharePolicy(Collective& collective);

  struct State;
  explicit TrainerRun(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dapd
