#include "common/model/reference/decoder.h"

#include <utility>

#include "common/model/reference/attention.h"
#include "common/model/rope.h"
#include "common/model/weights/layer_source.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

const LoraLayer* LoraOf(const Adapter* adapter, int64_t layer) {
  return adapter == nullptr ? nullptr
                            : &adapter->layers[static_cast<size_t>(layer)];
}

double ScaleOf(const Adapter* adapter) {
  return adapter == nullptr ? 0.0 : adapter->config.scale();
}

// Returns the position of each sequence's next token, [M] int64 on the CPU; 0
// for null.
at::Tensor NextPositions(std::span<KvCache* const> caches) {
  at::Tensor positions =
      at::zeros({static_cast<int64_t>(caches.size())}, at::kLong);
  int64_t* out = positions.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < caches.size(); ++i) {
    if (caches[i] != nullptr) out[i] = caches[i]->length();
  }
  return positions;
}

}  // namespace

PackedTokens PackTokens(const std::vector<std::vector<int32_t>>& sequences,
                        at::Device device) {
  PackedTokens packed;
  packed.offsets.push_back(0);
  for (const auto& sequence : sequences) {
    packed.offsets.push_back(packed.offsets.back() +
                             static_cast<int64_t>(sequence.size()));
  }
  packed.ids = at::empty({packed.offsets.back()}, at::kLong);
  int64_t* out = packed.ids.data_ptr<int64_t>();
  for (const auto& sequence : sequences) {
    for (const int32_t id : sequence) *out++ = id;
  }
  packed.ids = ToDevice(packed.ids, device);
  return packed;
}

at::Tensor PackedPositions(const std::vector<int64_t>& offsets,
                           at::Device device) {
  at::Tensor positions = at::empty({offsets.back()}, at::kLong);
  int64_t* out = positions.data_ptr<int64_t>();
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (int64_t t = offsets[i]; t < offsets[i + 1]; ++t) {
      out[t] = t - offsets[i];
    }
  }
  return ToDevice(positions, device);
}

at::Tensor ForwardTrunk(const ModelWeights& weights,
                        const Adapter* adapter,
                        const at::Tensor& ids,
                        const at::Tensor& positions,
                        Attention& attention,
                        const SumOverRanks& sum,
                        std::vector<at::Tensor>* inputs) {
  const RotaryAngles angles =
      MakeRotaryAngles(weights.config, positions, weights.dtype());
  at::Tensor x = Embed(weights, ids);
  const auto walk = WalkLayers(weights, WalkKind::kForward);
  for (int64_t i = 0; i < weights.config.num_layers; ++i) {
    if (inputs != nullptr) inputs->push_back(x);
    const LayerWeights layer = walk->Next(i);
    x = ForwardLayer({.config = weights.config,
                      .weights = layer,
                      .lora = LoraOf(adapter, i),
                      .lora_scale = ScaleOf(adapter),
                      .index = i},
                     angles,
                     attention,
                     sum,
                     x);
  }
  if (inputs != nullptr) inputs->push_back(x);
  return x;
}

at::Tensor ForwardHidden(const ModelWeights& weights,
                         const Adapter* adapter,
                         const PackedTokens& tokens,
                         const at::Tensor& rows,
                         const SumOverRanks& sum) {
  PackedAttention attention(tokens.offsets, weights.device());
  const at::Tensor x =
      ForwardTrunk(weights,
                   adapter,
                   tokens.ids,
                   PackedPositions(tokens.offsets, weights.device()),
                   attention,
                   sum);
  return FinalNorm(weights, x.index_select(0, rows));
}

at::Tensor ForwardPrompt(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         KvCache* cache,
                         const SumOverRanks& sum) {
  at::NoGradGuard no_grad;
  TORCH_CHECK(cache->length() == 0, "[decoder] the cache is in use");
  const int64_t tokens = ids.size(0);
  PromptAttention attention(cache, tokens, weights.device());
  const at::Tensor x = ForwardTrunk(
      weights, adapter, ids, at::arange(tokens, ids.options()), attention, sum);
  cache->Advance(tokens);
  return FinalNorm(weights, x.narrow(0, tokens - 1, 1));
}

at::Tensor ForwardTokens(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         std::span<KvCache* const> caches,
                         const SumOverRanks& sum) {
  at::NoGradGuard no_grad;
  DecodeAttention attention(caches);
  const at::Tensor x =
      ForwardTrunk(weights,
                   adapter,
                   ids,
                   ToDevice(NextPositions(caches), ids.device()),
                   attention,
                   sum);
  for (KvCache* cache : caches) {
    if (cache != nullptr) cache->Advance(1);
  }
  return FinalNorm(weights, x);
}

at::Tensor Embed(const ModelWeights& weights, const at::Tensor& ids) {
  const at::Tensor x = weights.embedding.index_select(0, ids);
  const double scale = ModelRecipeOf(weights.config).embedding_scale;
  if (scale == 1.0) return x;
  return x * at::scalar_tensor(scale, x.options());
}

at::Tensor FinalNorm(const ModelWeights& weights, const at::Tensor& x) {
  return RmsNorm(x,
                 weights.final_norm,
                 weights.config.rms_norm_eps,
                 ModelRecipeOf(weights.config).final_norm);
}

void CapLogits(double softcap, at::Tensor& logits) {
  if (softcap > 0.0) logits.div_(softcap).tanh_().mul_(softcap);
}

at::Tensor ApplyHead(const ModelWeights& weights, const at::Tensor& hidden) {
  at::Tensor logits = at::linear(hidden, weights.head).to(at::kFloat);
  CapLogits(ModelRecipeOf(weights.config).logit_softcap, logits);
  return logits;
}

}  // namespace dapd
