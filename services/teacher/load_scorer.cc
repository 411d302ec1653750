#include "services/teacher/load_scorer.h"

#include <future>
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/base_digest.h"
#include "common/model/weights/describe_worker.h"
#include "common/model/weights/worker_placement.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/model_scorer.h"

namespace dapd {
namespace {

// Describes a scorer of that shape, without its sets of weights.
WorkerDescription DescribeScorer(const Config& config,
                                 const ModelWeights& weights,
                                 const ScoringShape& shape) {
  WorkerDescription description =
      DescribeWorker("teacher", weights, config.lora.rank);
  // One half computes while the other half is sent.
  description.max_in_flight = 2 * shape.most_together;
  return description;
}

}  // namespace

absl::StatusOr<LoadedScorer> LoadModelScorer(const Config& config) {
  ASSIGN_OR_RETURN(
      const WorkerPlacement placement,
      OpenWorkerPlacement(config, "teacher", &MemoryPlan::teacher));
  const auto [device, dtype] = placement;
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadModelWeights(config.model.path, dtype, device));
  LoadedScorer loaded;
  const ScoringShape shape = ScoringShapeFor(config.teacher, device);
  loaded.description = DescribeScorer(config, *weights, shape);
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

absl::StatusOr<LoadedScorer> LoadTeacherScorer(const Config& config,
                                               const FurtherTeacher& teacher) {
  ASSIGN_OR_RETURN(const WorkerPlacement placement,
                   OpenWorkerPlacement(config, teacher.name(), [&] {
                     return PlanTeacherMemory(config, teacher);
                   }));
  const auto [device, dtype] = placement;
  auto digest = std::async(std::launch::async, [&] {
    return TeacherDigest(teacher.folder, teacher.adapter);
  });
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadModelWeights(teacher.folder, dtype, device));
  std::unique_ptr<const Adapter> adapter;
  if (!teacher.adapter.empty()) {
    ASSIGN_OR_RETURN(Adapter read,
                     ReadAdapter(teacher.adapter, weights->config, device));
    adapter = std::make_unique<const Adapter>(std::move(read));
  }
  LoadedScorer loaded;
  const ScoringShape shape = ScoringShapeFor(config.teacher, device);
  loaded.description = DescribeScorer(config, *weights, shape);
  loaded.description.weight_sets = {WeightSet::kBase};
  loaded.description.teacher = teacher.name();
  RETURN_IF_ERROR(CatchTorch([&] {
    loaded.scorer = MakeModelScorer(std::move(weights),
                                    shape,
                                    config.teacher.prefix_memory_mib << 20,
                                    /*lora=*/nullptr,
                                    std::move(adapter));
    return absl::OkStatus();
  }));
  ASSIGN_OR_RETURN(loaded.description.teacher_digest, digest.get());
  return loaded;
}

}  // namespace dapd
