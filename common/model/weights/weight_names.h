// The one table of names: every tensor of a checkpoint with its shape and its
// place in ModelWeights. Loading, expected-tensor checks and the names of
// adapter tensors all derive from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/spec/model_config.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct WeightSlot {
  std::string name;  // in the checkpoint
  std::vector<int64_t> shape;
  at::Tensor* target = nullptr;
  std::optional<ProjectionRecipe> projection =
      {};  // set for the weight of a projection
};

// Returns the slots of `weights`, whose config and number of layers must be
// set. The pointers stay valid while `weights` is not moved.
std::vector<WeightSlot> WeightSlots(ModelWeights& weights);

inline constexpr char kEmbeddingName[] = "model.embed_tokens.weight";
inline constexpr char kHeadName[] = "lm_head.weight";

}  // namespace dapd
