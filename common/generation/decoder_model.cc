#include "common/generation/decoder_model.h"

#include <utility>

#include "common/base/status_error.h"
#include "common/sharding/tensor_parallel.h"

namespace dapd {
namespace {

class WholeModel final : public DecoderModel {
 public:
  explicit WholeModel(std::shared_ptr<const ModelWeights> weights)
      : weights_(std::move(weights)) {}

  const ModelWeights& weights() const override { return *weights_; }
  const ModelConfig& cache_config() const override { return weights_->config; }
  int num_ranks() const override { return 1; }
  void SetAdapter(std::shared_ptr<const Adapter> adapter) override {
    adapter_ = std::move(adapter);
  }
  at::Tensor ForwardPrompt(const at::Tensor& ids, KvCache* cache) override {
    return dapd::ForwardPrompt(*weights_, adapter_.get(), ids, cache);
  }
  at::Tensor ForwardTokens(const at::Tensor& ids,
                           std::span<KvCache* const> caches) override {
    return dapd::ForwardTokens(*weights_, adapter_.get(), ids, caches);
  }
  at::Tensor ForwardHidden(const PackedTokens& tokens,
                           const at::Tensor& rows) override {
    return dapd::ForwardHidden(*weights_, adapter_.get(), tokens, rows);
  }

 private:
  const std::shared_ptr<const ModelWeights> weights_;
  std::shared_ptr<const Adapter> adapter_;
};

class ShardedModel final : public DecoderModel {
 public:
  ShardedModel(std::shared_ptr<const ShardedWeights> weights,
               std::unique_ptr<DeviceGroup> devices)
      : weights_(std::move(weights)),
        share_(ShardConfig(weights_->shard.config, weights_->layout)),
        devices_(std::move(devices)),
        sum_(SumOver(*devices_)) {}

  const ModelWeights& weights() const override { return weights_->shard; }
  const ModelConfig& cache_config() const override { return share_; }
  int num_ranks() const override { return weights_->layout.size; }
  void SetAdapter(std::shared_ptr<const Adapter> adapter) override {
    adapter_.reset();
    if (adapter == nullptr) return;
    adapter_ = std::make_shared<const Adapter>(
        ShardAdapter(*adapter, weights_->layout));
  }
  at::Tensor ForwardPrompt(const at::Tensor& ids, KvCache* cache) override {
    return ValueOrThrow(
        ForwardPromptSharded(*weights_, adapter_.get(), ids, cache, sum_));
  }
  at::Tensor ForwardTokens(const at::Tensor& ids,
                           std::span<KvCache* const> caches) override {
    return ValueOrThrow(
        ForwardTokensSharded(*weights_, adapter_.get(), ids, caches, sum_));
  }
  at::Tensor ForwardHidden(const PackedTokens& tokens,
                           const at::Tensor& rows) override {
    return ValueOrThrow(
        ForwardHiddenSharded(*weights_, adapter_.get(), tokens, rows, sum_));
  }

 private:
  const std::shared_ptr<const ShardedWeights> weights_;
  const ModelConfig share_;
  const std::unique_ptr<DeviceGroup> devices_;
  const TensorSum sum_;
  std::shared_ptr<const Adapter> adapter_;  // this rank's share
};

}  // namespace

std::unique_ptr<DecoderModel> MakeWholeModel(
    std::shared_ptr<const ModelWeights> weights) {
  return std::make_unique<WholeModel>(std::move(weights));
}

std::unique_ptr<DecoderModel> MakeShardedModel(
    std::shared_ptr<const ShardedWeights> weights,
    std::unique_ptr<DeviceGroup> devices) {
  return std::make_unique<ShardedModel>(std::move(weights), std::move(devices));
}

}  // namespace dapd
