#include "services/trainer/load_run.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/data/expected_answer.h"
#include "common/model/spec/executor_support.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/adapter_check.h"
#include "common/model/weights/device_memory.h"
#include "common/sharding/sharded_layers.h"
#include "common/tensor/torch_bridge.h"
#include "common/training/optimizer_options.h"
#include "common/training/policy_state.h"
#include "services/trainer/record/checkpoint.h"

namespace dapd {
namespace {

// What version 0 of the policy is.
absl::StatusOr<Adapter> StartAdapter(const Config& config,
                                     const LoraConfig& lora,
                                     const ModelWeights& weights) {
  if (config.lora.start_from.empty()) {
    return MakeFreshAdapter(
        weights.config, lora, config.run.seed, weights.device());
  }
  ASSIGN_OR_RETURN(const std::string folder,
                   FindStartAdapter(config.lora, weights.config));
  LogInfo(absl::StrCat("continuing from the adapter in ", folder));
  return ReadAdapter(folder, weights.config, weights.device());
}

// A run that has taken more steps than it is to take would say that it has
// finished them.
absl::Status CheckSteps(const TrainerSection& trainer,
                        const PolicyState& saved,
                        const RunFolder& folder) {
  if (saved.version <= trainer.steps) return absl::OkStatus();
  return ConfigError(absl::StrCat("trainer.steps is ",
                                  trainer.steps,
                                  ", but the run in ",
                                  folder.path(),
                                  " has taken ",
                                  saved.version,
                                  " steps; set it to ",
                                  saved.version,
                                  " to end the run there, or higher to go on"));
}

}  // namespace

absl::Status ReadProblems(const Config& config,
                          Dataset* data,
                          Dataset* held_out) {
  RETURN_IF_ERROR(RequireDataPath(config.data));
  ASSIGN_OR_RETURN(
      *data, ReadDataset(config.data.path, MakeDatasetOptions(config.data)));
  WarnOfBadAnswers(config.data.path, "data.answer_column", *data);
  if (!config.evaluation.path.empty()) {
    ASSIGN_OR_RETURN(
        *held_out,
        ReadDataset(config.evaluation.path, MakeHeldOutOptions(config.data)));
    WarnOfBadAnswers(config.evaluation.path, "data.answer_column", *held_out);
    WarnOfUngradedProblems(config, *held_out);
  }
  return ApplyAnswerRule(config, data);
}

absl::StatusOr<LoadedBase> LoadBase(const std::string& folder,
                                    at::ScalarType dtype,
                                    at::Device device,
                                    const TrainerSection& trainer) {
  LoadedBase base;
  RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    if (!trainer.shard_base) {
      ASSIGN_OR_RETURN(base.weights, LoadModelWeights(folder, dtype, device));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(
        base.shard,
        LoadShardedWeights(folder,
                           dtype,
                           device,
                           {.rank = static_cast<int>(trainer.rank),
                            .size = static_cast<int>(trainer.ranks)}));
    base.weights = WithLayersFrom(*base.shard, /*source=*/nullptr);
    return absl::OkStatus();
  }));
  return base;
}

absl::StatusOr<TrainerLimits> PlanLimits(const Config& config,
                                         const ModelWeights& weights) {
  TrainerLimits limits;
  RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    ASSIGN_OR_RETURN(limits,
                     PlanTrainerLimits(
                         config,
                         weights.config,
                         MemoryOf(weights.device(), config.run.gpu_processes)));
    return absl::OkStatus();
  }));
  if (weights.device().is_cuda()) LogInfo(Describe(limits, weights.config));
  for (const auto& [work, executor] :
       {std::pair("training", Executor::kLayerPass),
        std::pair("loss", Executor::kHeadKernels)}) {
    const std::string misfit = Misfit(executor, weights.config);
    if (!misfit.empty()) {
      LogWarning(absl::StrCat(work, " ", ByLibTorch(misfit)));
    }
  }
  return limits;
}

absl::StatusOr<std::unique_ptr<Policy>> StartPolicy(
    const Config& config,
    const LoraConfig& lora,
    const ModelWeights& weights,
    const RunFolder& folder,
    const RunIdentity& identity) {
  const OptimizerOptions options = MakeOptimizerOptions(config);
  ASSIGN_OR_RETURN(std::optional<PolicyState> saved,
                   LoadNewestCheckpoint(folder.File("checkpoints"),
                                        identity,
                                        weights.config,
                                        weights.device()));
  if (saved.has_value()) {
    RETURN_IF_ERROR(CheckSteps(config.trainer, *saved, folder));
    LogInfo(absl::StrCat(
        "resuming after step ", saved->version, " of ", folder.path()));
    return Policy::Restore(*std::move(saved), options);
  }
  if (const int64_t finished = FinishedStep(folder.path()); finished > 0) {
    return absl::DataLossError(
        absl::StrCat(folder.path(),
                     " holds a run that finished step ",
                     finished,
                     ", but no checkpoint to resume from; put one back, or "
                     "choose another run.name to start a new run"));
  }
  RETURN_IF_ERROR(CheckIdentity(folder.path(), identity));
  if (folder.resumed()) {
    LogInfo(absl::StrCat(folder.path(),
                         " has no checkpoint yet; starting at step 1"));
  }
  ASSIGN_OR_RETURN(Adapter start, StartAdapter(config, lora, weights));
  // A fresh adapter changes nothing: its snapshot is the base.
  std::optional<Adapter> snapshot;
  if (!config.lora.start_from.empty()) snapshot = start.Clone();
  return std::make_unique<Policy>(
      std::move(start), std::move(snapshot), options);
}

}  // namespace dapd
