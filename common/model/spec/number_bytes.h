// The sizes of a model's numbers, and of the scores that a teacher sends.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Returns the bytes of a weight, and of the values computed from it, by
// model.precision.
int64_t NumberBytes(const Config& config);

// Returns the bytes of a token's keys and values in all layers, in the model's
// precision.
int64_t KvTokenBytes(const Config& config, const ModelConfig& model);
// Returns the same for an answer that is decoded on a GPU, by
// rollout.kv_precision.
int64_t AnswerTokenBytes(const Config& config, const ModelConfig& model);

// Returns the bytes of a scored token of one view, by teacher.payload
// (teacher.proto): its last hidden state in the model's precision, float32
// logits, or an int32 id and a float32 log-probability of each of top_k tokens.
int64_t ScoreBytes(const Config& config, const ModelConfig& model);
// Returns the most that a scored token takes over `model` and further teachers.
int64_t MostScoreBytes(const Config& config,
                       const ModelConfig& model,
                       const FurtherTeachers& teachers);

// Returns the bytes of the heads of further teachers, which each trainer rank
// holds.
double HeadBytes(const Config& config, const FurtherTeachers& teachers);

}  // namespace dapd
