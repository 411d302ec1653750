// Writes a random Qwen3 with a few thousand parameters, as a Hugging Face
// folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/model/spec/model_config.h"
#include "common/model/weights/weight_names.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"
#include "common/tensor/safetensors.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {

inline constexpr int64_t kTinyVocab = 96;
inline constexpr int64_t kTinyHidden = 32;

// Writes config.json and model.safetensors into `folder`, which it creates.
inline void WriteTinyModel(const std::string& folder, uint64_t seed) {
  constexpr const char* kConfig = R"({
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
    "hidden_act": "silu", "vocab_size": 96, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
    "attention_bias": false, "eos_token_id": 1, "torch_dtype": "float32"})";
  Check(MakeDirectories(folder).ok(), "the test folder can be made");
  Check(WriteFileAtomically(JoinPath(folder, "config.json"), kConfig).ok(),
        "config.json can be written");
  ModelWeights weights;
  weights.config = *ReadModelConfig(folder);
  weights.layers.resize(static_cast<size_t>(weights.config.num_layers));
  auto generator = at::detail::createCPUGenerator(seed);
  NamedTensors tensors;
  for (const WeightSlot& slot : WeightSlots(weights)) {
    if (slot.name == kHeadName) continue;  // tied to the embedding
    const at::Tensor value = at::randn(slot.shape, generator) * 0.2;
    tensors.emplace_back(
        slot.name, *FromTorch(slot.shape.size() == 1 ? value + 1.0 : value));
  }
  Check(
      WriteSafetensors(JoinPath(folder, "model.safetensors"), tensors, {}).ok(),
      "model.safetensors can be written");
}

}  // namespace dapd
