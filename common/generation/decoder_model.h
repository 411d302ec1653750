// DecoderModel: the model that AtenBackend decodes with, either whole or this
// rank's share of a model that several ranks compute together (tensor
// parallelism).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/collective/device_group.h"
#include "common/model/reference/decoder.h"
#include "common/model/reference/kv_cache.h"
#include "common/model/score_rows.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Not thread-safe. Ranks that share a model call the same functions in the same
// order and get the same results; errors between them are StatusError.
class DecoderModel {
 public:
  explicit DecoderModel(std::shared_ptr<const ModelWeights> whole);
  // Takes this rank's share. `devices` is the group of all ranks that share the
  // model.
  DecoderModel(const ShardedWeights& share,
               std::shared_ptr<DeviceGroup> devices);

  // Returns the configuration of the whole model.
  const ModelConfig& config() const { return config_; }
  // Returns the weights that this process computes with. Embedding, final norm
  // and head are whole; heads and MLP, and therefore the caches, are its share.
  const ModelWeights& weights() const { return *weights_; }
  // Returns the number of processes that share the model, all on one machine.
  int num_ranks() const { return layout_.size; }

  // Takes the whole adapter; null means the base.
  void SetAdapter(std::shared_ptr<const Adapter> adapter);

  // Call the functions of decoder.h and token_logprobs.h with the adapter that
  // was set.
  at::Tensor ForwardPrompt(const at::Tensor& ids, KvCache* cache) const;
  at::Tensor ForwardTokens(const at::Tensor& ids,
                           std::span<KvCache* const> caches) const;
  at::Tensor TokenLogprobs(const std::vector<int32_t>& ids) const;
  RowScores TokenScores(const std::vector<int32_t>& ids) const;

 private:
  ModelConfig config_;
  ShardLayout layout_;
  std::shared_ptr<const ModelWeights> weights_;
  std::shared_ptr<DeviceGroup> devices_;  // null if the model is whole
  SumOverRanks sum_;
  std::shared_ptr<const Adapter> adapter_;  // this rank's share
};

}  // namespace dapd
