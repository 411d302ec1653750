// A model and an adapter of a test on a device, in the precision that it asks
// for.
#pragma once

#include <memory>
#include <optional>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weight_names.h"
#include "common/model/weights/weights.h"

namespace dapd {

// `dtype` none: that of `weights`.
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

// Its tensors require no grad.
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
