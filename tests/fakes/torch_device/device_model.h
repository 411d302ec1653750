// A tiny random model on the device that the host plays.
#pragma once

#include <memory>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weight_names.h"
#include "common/model/weights/weights.h"
#include "tests/fakes/model_on_device.h"
#include "tests/fakes/random_model.h"

namespace dapd {

inline at::Device PlayedDevice() { return {at::kCUDA, 0}; }

// Head dimension 16, which FlashAttention takes; weights small enough that
// rounding is not magnified. On the CPU.
inline std::shared_ptr<ModelWeights> MakeSmallModel(at::ScalarType dtype) {
  auto weights = std::make_shared<ModelWeights>();
  ModelConfig& config = weights->config;
  config = MakeRandomModel("qwen3")->config;
  config.head_dim = 16;
  weights->layers.resize(static_cast<size_t>(config.num_layers));
  at::Generator generator = at::detail::createCPUGenerator(4);
  for (const WeightSlot& slot : WeightSlots(*weights)) {
    *slot.target = (at::randn(slot.shape, generator) * 0.15 +
                    (slot.name.find("norm") != std::string::npos ? 1.0 : 0.0))
                       .to(dtype);
  }
  weights->head = weights->embedding;
  return weights;
}

inline std::shared_ptr<const ModelWeights> OnPlayedDevice(
    const ModelWeights& weights) {
  return OnDevice(weights, PlayedDevice());
}

inline Adapter OnPlayedDevice(const Adapter& adapter) {
  return OnDevice(adapter, PlayedDevice());
}

}  // namespace dapd
