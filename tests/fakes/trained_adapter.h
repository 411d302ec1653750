// An adapter whose B is not zero, as after some training.
#pragma once

#include "common/model/weights/adapter.h"

namespace dapd {

// Its tensors require grad. `targets`: all projections by default.
inline Adapter MakeTrainedAdapter(const ModelConfig& model,
                                  LoraConfig lora = {.rank = 4, .alpha = 8}) {
  Adapter adapter = MakeFreshAdapter(model, lora, 3, at::kCPU);
  at::Generator generator = at::detail::createCPUGenerator(4);
  for (auto& layer : adapter.layers) {
    for (LoraPair& pair : layer) {
      if (!pair.b.defined()) continue;
      pair.b = at::randn(pair.b.sizes(), generator) * 0.05;
    }
  }
  for (at::Tensor tensor : adapter.Tensors()) tensor.requires_grad_(true);
  return adapter;
}

}  // namespace dapd
