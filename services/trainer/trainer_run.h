// TrainerRun: everything a run needs besides its workers, loaded and checked
// before the first of them is asked. Hides LibTorch from main.cc, which sees
// gRPC.
#pragma once

#include <functional>
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

class Timeline;
struct LoraConfig;

class TrainerRun {
 public:
  // Reads model, tokenizer, template and data; refuses or leaves out problems
  // whose views are too long (ApplyViewLimits); makes the run folder, or goes
  // on where its newest checkpoint left off.
  //
  // A rank other than 0 (trainer.rank) has no run folder: it gets its policy
  // from rank 0. Waits for memory of the GPU that another process holds
  // (AwaitGpuMemory); `wait_for_stop` as there.
  static absl::StatusOr<std::unique_ptr<TrainerRun>> Load(
      const LoadedConfig& loaded,
      const RunDisplays& displays,
      const std::function<bool(absl::Duration)>& wait_for_stop);
  ~TrainerRun();

  // What a worker must have loaded to serve this run.
  ExpectedWorker ExpectedWorkers() const;

  // SHA-256 of all that the result depends on: what ranks must agree on.
  std::string Identity() const;

  // Blocks to the end; as TrainerLoop::Run. Leaves a report.html however it
  // ends. `wait_for_stop` blocks for at most the given time; true once the run
  // is to stop. `timeline`: null for none.
  absl::Status Train(RolloutClient& rollouts,
                     TeacherClient& teachers,
                     Collective& collective,
                     Timeline* timeline,
                     std::function<bool(absl::Duration)> wait_for_stop);

  // Keeps in the run folder how this attempt ended (run_outcome.h); what goes
  // wrong is logged.
  void RecordOutcome(const absl::Status& outcome) const;

 private:
  absl::Status OpenFolder(const LoraConfig& lora);
  // Begins to copy the run, where checkpoint.copy_to says so.
  void StartCopier();
  absl::Status SharePolicy(Collective& collective);

  struct State;
  explicit TrainerRun(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dapd
