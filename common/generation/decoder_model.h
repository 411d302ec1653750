// DecoderModel: what AtenBackend decodes with. A whole model, or this rank's
// share of one that several ranks compute together (tensor parallelism).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/collective/device_group.h"
#include "common/model/reference/decoder.h"
#include "common/model/reference/kv_cache.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Not thread-safe. The functions are those of decoder.h under the adapter that
// was set. Ranks that share a model call the same ones in the same order, and
// get the same results; errors between them are StatusError.
class DecoderModel {
 public:
  virtual ~DecoderModel() = default;

  // Embedding, final norm, head and the configuration of the whole model.
  virtual const ModelWeights& weights() const = 0;
  // Of this process's caches: its share of the heads.
  virtual const ModelConfig& cache_config() const = 0;
  // Processes that share the model, all on one machine.
  virtual int num_ranks() const = 0;

  // The whole adapter; null: the base.
  virtual void SetAdapter(std::shared_ptr<const Adapter> adapter) = 0;

  virtual at::Tensor ForwardPrompt(const at::Tensor& ids, KvCache* cache) = 0;
  virtual at::Tensor ForwardTokens(const at::Tensor& ids,
                                   std::span<KvCache* const> caches) = 0;
  virtual at::Tensor ForwardHidden(const PackedTokens& tokens,
                                   const at::Tensor& rows) = 0;
};

std::unique_ptr<DecoderModel> MakeWholeModel(
    std::shared_ptr<const ModelWeights> weights);

// `devices`: of all ranks that share it.
std::unique_ptr<DecoderModel> MakeShardedModel(
    std::shared_ptr<const ShardedWeights> weights,
    std::unique_ptr<DeviceGroup> devices);

}  // namespace dapd
