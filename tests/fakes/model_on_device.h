// Copies a test's model and adapter to a device, in the requested precision.
#pragma once

#include <memory>
#include <optional>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weight_names.h"
#include "common/model/weights/weights.h"

namespace dapd {

// Without `dtype` the copy has the dtype of `weights`.
inline std::shared_ptr<const ModelWeights> OnDevice(
    const ModelWeights& weights,
    at::Device device,
    std::optional<at::ScalarType> dtype = std::nullopt) {
  auto copy = std::make_shared<ModelWeights>(weights);
  for (const WeightSlot& slot : WeightSlots(*copy)) {
    *slot.target = slot.target->to(device, dtype.value_or(weights.dtype()));
  }
  if (copy->config.tied_embeddings) copy->head = copy->embedding;
  return copy;
}

// The tensors of the copy require no grad.
inline Adapter OnDevice(const Adapter& adapter, at::Device device) {
  Adapter copy = adapter;
  for (auto& layer : copy.layers) {
    for (LoraPair& pair : layer) {
      if (!pair.a.defined()) continue;
      pair.a = pair.a.detach().to(device);
      pair.b = pair.b.detach().to(device);
    }
  }
  return copy;
}

}  // namespace dapd
