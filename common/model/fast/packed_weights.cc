#include "common/model/fast/packed_weights.h"

#include <algorithm>
#include <utility>

#include "common/model/spec/decoding_shape.h"

namespace dapd {
namespace {

const at::Tensor& WeightOf(const ModelWeights& weights,
                           int64_t layer,
                           Projection part) {
  return weights.layers[static_cast<size_t>(layer)].weight[IndexOf(part)];
}

// Makes the parts of `base`, [out of all parts, in], the layer's own weights.
void TakeOver(LayerWeights& layer,
              const std::vector<Projection>& parts,
              const at::Tensor& base) {
  int64_t row = 0;
  for (const Projection part : parts) {
    at::Tensor& weight = layer.weight[IndexOf(part)];
    const int64_t out = weight.size(0);
    weight = base.narrow(0, row, out);
    row += out;
  }
}

}  // namespace

PackedWeights::PackedWeights(ModelWeights& weights,
                             AdapterForm form,
                             const LoraConfig* lora,
                             MergePair merge)
    : weights_(weights), form_(form), merge_(std::move(merge)) {
  if (form_ == AdapterForm::kColumns && lora != nullptr) {
    rank_ = PaddedRank(lora->rank);
    targets_ = TargetsOf(*lora, weights.config);
  }
  const ModelConfig& config = weights.config;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    std::array<PackedLinear, kNumLayerProducts>& linears =
        layers_.emplace_back();
    const LayerRecipe recipe = LayerRecipeOf(config, layer);
    const auto groups = recipe.Groups();
    for (size_t i = 0; i < linears.size(); ++i) {
      PackedLinear& linear = linears[i];
      linear.parts = groups.at(i);
      std::vector<at::Tensor> stacked;
      std::vector<at::Tensor> biases;
      for (const Projection part : linear.parts) {
        stacked.push_back(WeightOf(weights, layer, part));
        linear.in = recipe[part].in;
        if (HasColumns(recipe[part])) linear.lora += rank_;
        const at::Tensor& bias =
            weights.layers[static_cast<size_t>(layer)].bias[IndexOf(part)];
        if (bias.defined()) biases.push_back(bias);
      }
      TORCH_CHECK(biases.empty() || biases.size() == linear.parts.size(),
                  "[packed_weights] layer ",
                  layer,
                  ": some of the stacked projections have a bias, some not");
      if (!biases.empty()) linear.bias = at::cat(biases);
      const auto options = stacked[0].options();
      int64_t out = 0;
      for (const at::Tensor& part : stacked) {
        linear.rows.push_back(part.size(0));
        out += part.size(0);
      }
      linear.weight = at::zeros({out, linear.in + linear.lora}, options);
      at::Tensor base = linear.weight.narrow(1, 0, linear.in);
      at::cat_out(base, stacked);
      if (form_ == AdapterForm::kColumns) {
        stacked.clear();
        TakeOver(
            weights.layers[static_cast<size_t>(layer)], linear.parts, base);
      }
      if (linear.lora > 0) {
        linear.lora_a = at::zeros({linear.lora, linear.in}, options);
      }
    }
  }
}

bool PackedWeights::Fits(const Adapter* adapter) const {
  if (adapter == nullptr || form_ == AdapterForm::kMerged) return true;
  const LoraConfig& lora = adapter->config;
  return PaddedRank(lora.rank) == rank_ &&
         TargetsOf(lora, weights_.config) == targets_;
}

bool PackedWeights::HasColumns(const ProjectionRecipe& projection) const {
  return std::ranges::count(targets_, projection.name) > 0;
}

void PackedWeights::Apply(const Adapter* adapter) {
  TORCH_CHECK(Fits(adapter),
              "[packed_weights] the weights have columns for adapters of "
              "another rank or other targets");
  at::NoGradGuard no_grad;
  if (adapter == nullptr && is_base_) return;
  // Until all layers are done, the weights are neither: memory may run out half
  // way.
  is_base_ = false;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (PackedLinear& linear : layers_[layer]) {
      ApplyTo(static_cast<int64_t>(layer), adapter, &linear);
    }
  }
  is_base_ = adapter == nullptr;
}

void PackedWeights::ApplyTo(int64_t layer,
                            const Adapter* adapter,
                            PackedLinear* linear) {
  const LayerRecipe recipe = LayerRecipeOf(weights_.config, layer);
  int64_t row = 0;
  int64_t column = linear->in;
  for (const Projection part : linear->parts) {
    const at::Tensor& base = WeightOf(weights_, layer, part);
    const int64_t out = base.size(0);
    const LoraPair pair =
        adapter == nullptr
            ? LoraPair{}
            : adapter->layers[static_cast<size_t>(layer)][IndexOf(part)];
    const double scale = adapter == nullptr ? 0.0 : adapter->config.scale();
    const at::Tensor rows = linear->weight.narrow(0, row, out);
    if (form_ == AdapterForm::kMerged && pair.a.defined()) {
      merge_(base, pair, scale, rows);
    } else if (form_ == AdapterForm::kMerged) {
      rows.copy_(base);
    } else if (HasColumns(recipe[part])) {
      at::Tensor b = rows.narrow(1, column, rank_);
      at::Tensor a = linear->lora_a.narrow(0, column - linear->in, rank_);
      if (pair.a.defined()) {
        const int64_t rank = pair.a.size(0);
        a.narrow(0, 0, rank).copy_(pair.a);
        b.narrow(1, 0, rank).copy_(pair.b * scale);
        // An adapter of a higher rank may have been there.
        b.narrow(1, rank, rank_ - rank).zero_();
      } else {
        b.zero_();
      }
      column += rank_;
    }
    row += out;
  }
}

}  // namespace dapd
