#include "services/teacher/load_scorer.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/weights/describe_worker.h"
#include "common/model/weights/worker_placement.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/model_scorer.h"

namespace dapd {

absl::StatusOr<LoadedScorer> LoadModelScorer(const Config& config) {
  ASSIGN_OR_RETURN(
      const WorkerPlacement placement,
      OpenWorkerPlacement(config, "teacher", &MemoryPlan::teacher));
  const auto [device, dtype] = placement;
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadModelWeights(config.model.path, dtype, device));
  LoadedScorer loaded;
  loaded.description = DescribeWorker("teacher", *weights, config.lora.rank);
  const ScoringShape shape = ScoringShapeFor(config.teacher, device);
  // One half computes while the other half is sent.
  loaded.description.max_in_flight = 2 * shape.most_together;
  loaded.description.weight_sets = {kTeacherSets.begin(), kTeacherSets.end()};
  ASSIGN_OR_RETURN(const LoraConfig lora,
                   MakeLoraConfig(config.lora, weights->config));
  RETURN_IF_ERROR(CatchTorch([&] {
    loaded.scorer =
        MakeModelScorer(std::move(weights),
                        shape,
                        config.teacher.prefix_memory_mib << 20,
                        TeacherSets(config).empty() ? nullptr : &lora);
    return absl::OkStatus();
  }));
  return loaded;
}

}  // namespace dapd
