// Makes an adapter whose B is not zero, as after some training.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"

namespace dapd {

// Returns an adapter as code without training has it: no tensor requires grad.
// Without `targets` it has all projections.
inline Adapter MakeFrozenAdapter(const ModelConfig& model,
                                 LoraConfig lora = {.rank = 4, .alpha = 8}) {
  Adapter adapter = MakeFreshAdapter(model, lora, 3, at::kCPU);
  at::Generator generator = at::detail::createCPUGenerator(4);
  for (auto& layer : adapter.layers) {
    for (LoraPair& pair : layer) {
      if (!pair.b.defined()) continue;
      pair.b = at::randn(pair.b.sizes(), generator) * 0.05;
    }
  }
  return adapter;
}

// Returns the adapter of MakeFrozenAdapter as it is trained: its tensors
// require grad.
inline Adapter MakeTrainedAdapter(const ModelConfig& model,
                                  LoraConfig lora = {.rank = 4, .alpha = 8}) {
  Adapter adapter = MakeFrozenAdapter(model, lora);
  for (at::Tensor tensor : adapter.Tensors()) tensor.requires_grad_(true);
  return adapter;
}

// Returns an adapter for decode backends: no tensor requires grad, and the rank
// is odd. Without `targets` it has all projections.
inline std::shared_ptr<const Adapter> MakeAdapter(
    const ModelWeights& weights, std::vector<std::string> targets = {}) {
  auto adapter = std::make_shared<Adapter>(
      MakeFreshAdapter(weights.config,
                       {.rank = 5, .alpha = 8, .targets = std::move(targets)},
                       1,
                       at::kCPU));
  at::Generator generator = at::detail::createCPUGenerator(7);
  for (auto& layer : adapter->layers) {
    for (LoraPair& pair : layer) {
      if (pair.b.defined()) pair.b.normal_(0, 0.1, generator);
    }
  }
  return adapter;
}

}  // namespace dapd
