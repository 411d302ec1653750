#include "services/cli/local_policy.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"
#include "common/data/model_text.h"
#include "common/data/teacher_text.h"
#include "common/hub/model_folder.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/placement.h"

namespace dapd {
namespace {

bool ReadsWeights(const Config& config, WeightSet weights) {
  return std::ranges::any_of(
      TeacherPasses(ExpandTerms(config.objective)),
      [&](const TeacherPass& pass) { return pass.weights == weights; });
}

// Returns the snapshot's adapter; empty: the base. If no term reads it, the
// adapter that a run began with need not exist any more.
std::string SnapshotAdapter(const Config& config,
                            const LocalPolicyOptions& options) {
  if (!options.snapshot.empty()) return options.snapshot;
  return ReadsWeights(config, WeightSet::kSnapshot) ? config.lora.start_from
                                                    : "";
}

}  // namespace

void LocalPolicyOptions::AddFlags(Command& command) {
  command
      .AddOption("--adapter",
                 adapter,
                 "PEFT folder of the live adapter (default: "
                 "lora.start_from or, without it, a fresh one)")
      .Path()
      .NotEmpty();
  command
      .AddOption("--snapshot",
                 snapshot,
                 "PEFT folder of the snapshot (default: lora.start_from, "
                 "else the base)")
      .Path()
      .NotEmpty();
  command
      .AddOption("--ema",
                 ema,
                 "PEFT folder of the moving average (default: the live "
                 "adapter, which it is before the first step)")
      .Path()
      .NotEmpty();
}

const std::string& LocalPolicyOptions::LiveAdapter(const Config& config) const {
  return adapter.empty() ? config.lora.start_from : adapter;
}

absl::StatusOr<LocalPolicy> LoadLocalPolicy(const Config& config,
                                            const LocalPolicyOptions& options) {
  LocalPolicy local;
  ASSIGN_OR_RETURN(ModelText base, ReadModelText(config));
  ASSIGN_OR_RETURN(const at::Device device, OpenDevice(config.model));
  const at::ScalarType dtype = TypeOf(config.model.precision);
  ASSIGN_OR_RETURN(const LoraConfig lora,
                   MakeLoraConfig(config.lora, base.model));
  SetComputeThreads(config.run.num_threads);
  ASSIGN_OR_RETURN(local.weights, LoadModelWeights(base.folder, dtype, device));
  RETURN_IF_ERROR(CheckTeacherText(base.teachers, base));
  ASSIGN_OR_RETURN(LocalTeachers teachers,
                   LocalTeachers::Load(base.teachers, *local.weights));
  local.teachers = std::make_unique<const LocalTeachers>(std::move(teachers));
  local.text = std::move(base.text);
  const ModelConfig& model = local.weights->config;
  // Without a name there is nothing to read.
  const auto read =
      [&](const std::string& name) -> absl::StatusOr<std::optional<Adapter>> {
    if (name.empty()) return std::nullopt;
    ASSIGN_OR_RETURN(const std::string path, FindAdapterFolder(name));
    return ReadAdapter(path, model, device);
  };
  ASSIGN_OR_RETURN(std::optional<Adapter> live,
                   read(options.LiveAdapter(config)));
  if (!live.has_value()) {
    live = MakeFreshAdapter(model, lora, config.run.seed, device);
  }
  ASSIGN_OR_RETURN(std::optional<Adapter> snapshot,
                   read(SnapshotAdapter(config, options)));
  ASSIGN_OR_RETURN(std::optional<Adapter> ema, read(options.ema));
  if (!options.adapter.empty() && !ema.has_value() &&
      ReadsWeights(config, WeightSet::kEma)) {
    LogWarning(
        "a term reads the moving average, and --adapter is given without "
        "--ema: the adapter itself stands in its place. For step N of a run, "
        "give the folder ema of the checkpoint of step N-1");
  }
  local.policy = std::make_unique<Policy>(*std::move(live),
                                          std::move(snapshot),
                                          MakeOptimizerOptions(config),
                                          std::move(ema));
  return local;
}

}  // namespace dapd
