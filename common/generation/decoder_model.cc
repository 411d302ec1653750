#include "common/generation/decoder_model.h"

#include <utility>

#include "common/model/reference/token_logprobs.h"
#include "common/sharding/tensor_parallel.h"

namespace dapd {

DecoderModel::DecoderModel(std::shared_ptr<const ModelWeights> whole)
    : config_(whole->config), weights_(std::move(whole)) {}

DecoderModel::DecoderModel(const ShardedWeights& share,
                           std::shared_ptr<DeviceGroup> devices)
    : config_(share.shard.config),
      layout_(share.layout),
      weights_(std::make_shared<const ModelWeights>(WeightsOfRank(share))),
      devices_(std::move(devices)),
      sum_(SumOver(*devices_)) {}

void DecoderModel::SetAdapter(std::shared_ptr<const Adapter> adapter) {
  if (adapter != nullptr && devices_ != nullptr) {
    adapter = std::make_shared<const Adapter>(
        ShardAdapter(*adapter, config_, layout_));
  }
  adapter_ = std::move(adapter);
}

at::Tensor DecoderModel::ForwardPrompt(const at::Tensor& ids,
                                       KvCache* cache) const {
  return dapd::ForwardPrompt(*weights_, adapter_.get(), ids, cache, sum_);
}

at::Tensor DecoderModel::ForwardTokens(const at::Tensor& ids,
                                       std::span<KvCache* const> caches) const {
  return dapd::ForwardTokens(*weights_, adapter_.get(), ids, caches, sum_);
}

at::Tensor DecoderModel::TokenLogprobs(const std::vector<int32_t>& ids) const {
  return dapd::TokenLogprobs(*weights_, adapter_.get(), ids, sum_);
}

RowScores DecoderModel::TokenScores(const std::vector<int32_t>& ids) const {
  return dapd::TokenScores(*weights_, adapter_.get(), ids, sum_);
}

}  // namespace dapd
