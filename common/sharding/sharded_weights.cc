#include "common/sharding/sharded_weights.h"

#include "common/base/status_macros.h"

namespace dapd {

absl::StatusOr<std::shared_ptr<const ShardedWeights>> LoadShardedWeights(
    const std::string& folder,
    at::ScalarType dtype,
    at::Device device,
    const ShardLayout& layout) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(folder));
  RETURN_IF_ERROR(CheckShardLayout(config, layout));
  ASSIGN_OR_RETURN(
      const std::shared_ptr<const ModelWeights> weights,
      LoadModelWeights(folder,
                       dtype,
                       device,
                       [&layout](const ProjectionRecipe& projection,
                                 const at::Tensor& whole) {
                         return ShardOf(
                                    whole, SplitDimension(projection), layout)
                             .clone(at::MemoryFormat::Contiguous);
                       }));
  auto sharded = std::make_shared<ShardedWeights>();
  sharded->layout = layout;
  sharded->shard = *weights;
  return sharded;
}

}  // namespace dapd
