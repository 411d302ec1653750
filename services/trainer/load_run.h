// The parts of a run that take long to read, each for itself: what TrainerRun
// loads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/config/run_folder.h"
#include "common/data/dataset.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"
#include "common/training/policy.h"
#include "services/trainer/record/run_identity.h"

namespace dapd {

// What to train on, and what to evaluate on.
absl::Status ReadProblems(const Config& config,
                          Dataset* data,
                          Dataset* held_out);

struct LoadedBase {
  std::shared_ptr<const ModelWeights> weights;
  // This rank's part where the ranks split the base; `weights` then gets its
  // layers from all of them, once they are connected.
  std::shared_ptr<const ShardedWeights> shard;
};

absl::StatusOr<LoadedBase> LoadBase(const std::string& folder,
                                    at::ScalarType dtype,
                                    at::Device device,
                                    const TrainerSection& trainer);

// What fits on this rank's device beside the model; with the log told of it
// where that is a GPU.
absl::StatusOr<TrainerLimits> PlanLimits(const Config& config,
                                         const ModelWeights& weights);

// The policy where the run folder's newest checkpoint left off, or at the
// start. Errors as LoadNewestCheckpoint, also for a folder without one in which
// another run began (CheckIdentity), and DATA_LOSS for a finished run without
// one.
absl::StatusOr<std::unique_ptr<Policy>> StartPolicy(
    const Config& config,
    const LoraConfig& lora,
    const ModelWeights& weights,
    const RunFolder& folder,
    const RunIdentity& identity);

}  // namespace dapd
