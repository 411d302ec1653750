// Makes a policy over the adapter of a tiny model, and gradients for it.
#pragma once

#include <cstdint>
#include <optional>

#include "gtest/gtest.h"

#include "common/training/policy.h"

namespace dapd {

inline ModelConfig TinyModel() {
  ModelConfig config;
  config.model_type = "qwen3";
  config.vocab_size = 16;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_layers = 2;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  return config;
}

inline Policy MakePolicy(OptimizerOptions options) {
  return Policy(
      MakeFreshAdapter(TinyModel(), {.rank = 2, .alpha = 4}, 7, at::kCPU),
      std::nullopt,
      options);
}

inline void FillGradients(const Policy& policy, double value) {
  for (at::Tensor tensor : policy.live().Tensors()) {
    tensor.mutable_grad() = at::full_like(tensor, value).detach();
  }
}

// Returns options with a falling learning rate and clipped gradients.
inline OptimizerOptions ClippingOptions(int64_t snapshot_interval) {
  return {.learning_rate = 0.01,
          .schedule_steps = 100,
          .max_grad_norm = 0.1,
          .snapshot_interval = snapshot_interval};
}

inline void ExpectSame(const Adapter& a, const Adapter& b) {
  for (size_t i = 0; i < a.Tensors().size(); ++i) {
    EXPECT_TRUE(at::equal(a.Tensors()[i], b.Tensors()[i])) << a.Names()[i];
  }
}

}  // namespace dapd
