#include "services/cli/local_policy.h"

#include <optional>
#include <utility>

#include "common/base/status_macros.h"
#include "common/data/model_text.h"
#include "common/hub/model_folder.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/placement.h"

namespace dapd {

absl::StatusOr<LocalPolicy> LoadLocalPolicy(const Config& config,
                                            const std::string& adapter,
                                            const std::string& snapshot) {
  LocalPolicy local;
  ASSIGN_OR_RETURN(ModelText base, ReadModelText(config));
  ASSIGN_OR_RETURN(const at::Device device, OpenDevice(config.model));
  ASSIGN_OR_RETURN(const at::ScalarType dtype,
                   ParsePrecision(config.model.precision));
  ASSIGN_OR_RETURN(const LoraConfig lora, MakeLoraConfig(config.lora));
  SetComputeThreads(config.run.num_threads);
  ASSIGN_OR_RETURN(local.weights, LoadModelWeights(base.folder, dtype, device));
  local.text = std::move(base.text);
  const ModelConfig& model = local.weights->config;
  const auto read = [&](const std::string& name) -> absl::StatusOr<Adapter> {
    ASSIGN_OR_RETURN(const std::string path, FindAdapterFolder(name));
    return ReadAdapter(path, model, device);
  };
  Adapter live = MakeFreshAdapter(model, lora, config.run.seed, device);
  if (!adapter.empty()) {
    ASSIGN_OR_RETURN(live, read(adapter));
  }
  std::optional<Adapter> older;
  if (!snapshot.empty()) {
    ASSIGN_OR_RETURN(older, read(snapshot));
  }
  local.policy = std::make_unique<Policy>(
      std::move(live), std::move(older), MakeOptimizerOptions(config));
  return local;
}

}  // namespace dapd
