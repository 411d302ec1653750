#include "common/generation/cpu/cpu_model.h"

#include <algorithm>
#include <utility>

namespace dapd {
namespace {

std::vector<float> ToVector(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor wide = tensor.to(at::kFloat).contiguous();
  const float* values = wide.const_data_ptr<float>();
  return {values, values + wide.numel()};
}

}  // namespace

int64_t CpuModel::WeightBytes() const {
  int64_t bytes = head.weight.bytes();
  for (const CpuLayer& layer : layers) {
    for (const CpuLinear& linear : layer.linears) {
      bytes += linear.weight.bytes();
    }
  }
  return bytes;
}

void CpuModel::Embed(int32_t token, float* row) const {
  if (!embedding.defined()) return head.weight.CopyRow(token, row);
  const int64_t begin = token * config.hidden_size;
  if (dtype == at::kBFloat16) {
    const at::BFloat16* values = embedding.const_data_ptr<at::BFloat16>();
    std::copy_n(values + begin, config.hidden_size, row);
  } else {
    std::copy_n(
        embedding.const_data_ptr<float>() + begin, config.hidden_size, row);
  }
}

std::shared_ptr<const CpuModel> PackModel(const ModelWeights& weights) {
  at::NoGradGuard no_grad;
  auto model = std::make_shared<CpuModel>();
  model->config = weights.config;
  model->dtype = weights.dtype();
  for (size_t index = 0; index < weights.layers.size(); ++index) {
    using enum NormPlace;
    const LayerWeights& source = weights.layers[index];
    const auto groups =
        LayerRecipeOf(weights.config, static_cast<int64_t>(index)).Groups();
    CpuLayer& layer = model->layers.emplace_back();
    layer.input_norm = ToVector(source.norm(kBeforeAttention));
    layer.post_attention_norm = ToVector(source.norm(kBeforeMlp));
    layer.q_norm = ToVector(source.norm(kQueries));
    layer.k_norm = ToVector(source.norm(kKeys));
    for (size_t i = 0; i < layer.linears.size(); ++i) {
      std::vector<at::Tensor> parts;
      std::vector<at::Tensor> biases;
      for (const Projection projection : groups.at(i)) {
        parts.push_back(source.weight[IndexOf(projection)]);
        biases.push_back(source.bias[IndexOf(projection)]);
      }
      layer.linears[i] = FuseLinear(parts, biases);
    }
  }
  model->final_norm = ToVector(weights.final_norm);
  model->head = FuseLinear(std::span(&weights.head, 1), {});
  if (!weights.head.is_same(weights.embedding)) {
    model->embedding = weights.embedding.contiguous();
  }
  return model;
}

CpuAdapter PackAdapter(const Adapter& adapter,
                       const ModelConfig& config,
                       CpuAdapter recycled) {
  at::NoGradGuard no_grad;
  recycled.layers.resize(adapter.layers.size());
  for (size_t index = 0; index < adapter.layers.size(); ++index) {
    const auto& source = adapter.layers[index];
    auto& layer = recycled.layers[index];
    const auto groups =
        LayerRecipeOf(config, static_cast<int64_t>(index)).Groups();
    for (size_t i = 0; i < layer.size(); ++i) {
      std::vector<LoraPair> pairs;
      for (const Projection projection : groups.at(i)) {
        pairs.push_back(source[IndexOf(projection)]);
      }
      CpuLora& lora = layer[i];
      lora = FuseLora(pairs, adapter.config.scale(), std::move(lora));
    }
  }
  return recycled;
}

}  // namespace dapd
