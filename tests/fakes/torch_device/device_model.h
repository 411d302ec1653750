// Makes a tiny random model on the device that the host simulates.
#pragma once

#include <memory>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "tests/fakes/model_on_device.h"
#include "tests/fakes/random_model.h"

namespace dapd {

inline at::Device SimulatedDevice() { return {at::kCUDA, 0}; }

// Returns a model on the CPU with head dimension 16, which FlashAttention
// accepts, and with weights that are small enough not to magnify rounding.
inline std::shared_ptr<ModelWeights> MakeSmallModel(at::ScalarType dtype) {
  auto weights = std::make_shared<ModelWeights>();
  weights->config = MakeRandomModel("qwen3")->config;
  weights->config.head_dim = 16;
  DrawWeights(4, 0.15, dtype, weights.get());
  return weights;
}

inline std::shared_ptr<const ModelWeights> OnSimulatedDevice(
    const ModelWeights& weights) {
  return OnDevice(weights, SimulatedDevice());
}

inline Adapter OnSimulatedDevice(const Adapter& adapter) {
  return OnDevice(adapter, SimulatedDevice());
}

}  // namespace dapd
