// The size of what a model computes with, and of what a teacher sends of it.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Bytes of a weight, and of what is computed from it, by model.precision.
int64_t NumberBytes(const Config& config);

// Bytes of a token's keys and values in all layers.
int64_t KvTokenBytes(const Config& config, const ModelConfig& model);

// Bytes of a scored token of one view, by teacher.payload (teacher.proto): its
// last hidden state as the model computes it, float32 logits, or an int32 id
// and a float32 log-probability of each of top_k tokens.
int64_t ScoreBytes(const Config& config, const ModelConfig& model);

}  // namespace dapd
