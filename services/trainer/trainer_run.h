// TrainerRun: everything a run needs besides its workers, loaded and checked
// before the first of them is asked. Hides LibTorch from main.cc, which sees
// gRPC.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/load_config.h"
#include "common/rpc/worker_pool_options.h"
#include "services/trainer/rollout_client.h"
#include "services/trainer/teacher_client.h"

namespace dapd {

class TrainerMetrics;
class TrainerStatus;

class TrainerRun {
 public:
  // Reads model, tokenizer, template and data; refuses problems whose views do
  // not fit the model's context; makes the run folder, or goes on where its
  // newest checkpoint left off. `metrics` and `status` must outlive the run.
  static absl::StatusOr<std::unique_ptr<TrainerRun>> Load(
      const LoadedConfig& loaded,
      TrainerMetrics* metrics,
      TrainerStatus* status);
  ~TrainerRun();

  // What a worker must have loaded to serve this run.
  ExpectedWorker ExpectedWorkers() const;

  // Blocks to the end; as TrainerLoop::Run.
  // `wait_for_stop` blocks for at most the given time; true once the run is to
  // stop.
  absl::Status Train(RolloutClient& rollouts,
                     TeacherClient& teachers,
                     std::function<bool(absl::Duration)> wait_for_stop);

 private:
  struct State;
  explicit TrainerRun(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dapd
