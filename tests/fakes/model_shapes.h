// Defines shapes of models for which plans are made and memory is counted.
#pragma once

#include "common/model/spec/model_config.h"

namespace dapd {

// Returns the shape of Qwen3-4B.
inline ModelConfig FourBillion() {
  ModelConfig model;
  model.vocab_size = 151936;
  model.hidden_size = 2560;
  model.intermediate_size = 9728;
  model.num_layers = 36;
  model.num_heads = 32;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.qk_norm = true;
  model.tied_embeddings = true;
  return model;
}

// One layer of FourBillion with a sixteenth of its sizes, small enough for a
// host that simulates the device.
inline ModelConfig SixteenthOfFourBillion() {
  ModelConfig model;
  model.model_type = "qwen3";
  model.vocab_size = 8;
  model.hidden_size = 160;
  model.intermediate_size = 608;
  model.num_layers = 1;
  model.num_heads = 8;
  model.num_kv_heads = 2;
  model.head_dim = 32;
  model.qk_norm = true;
  model.tied_embeddings = true;
  return model;
}

}  // namespace dapd
