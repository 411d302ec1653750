// The source of a model's layers for a pass: they are in memory, or each is
// gathered while it is computed (common/sharding/sharded_layers.h).
#pragma once

#include <cstdint>
#include <memory>

#include "common/model/weights/weights.h"

namespace dapd {

enum class WalkKind {
  kForward,             // layers 0, 1, ..., L - 1
  kForwardAndBackward,  // and then L - 1, ..., 1, 0
};

// The way of one pass through the layers. Not thread-safe. A walk may end
// early.
class LayerWalk {
 public:
  virtual ~LayerWalk() = default;

  // Returns the next layer on the way, which must be layer `index`. The caller
  // must release it before it asks for the following layer: there is only room
  // for two layers. Throws StatusError, and c10::OutOfMemoryError.
  virtual LayerWeights Next(int64_t index) = 0;
};

class LayerSource {
 public:
  virtual ~LayerSource() = default;

  // The previous walk must have ended. Throws StatusError.
  virtual std::unique_ptr<LayerWalk> Begin(WalkKind kind) = 0;
};

// Walks through `weights.source` or, if there is none, `weights.layers`, which
// must outlive the walk.
std::unique_ptr<LayerWalk> WalkLayers(const ModelWeights& weights,
                                      WalkKind kind);

}  // namespace dapd
