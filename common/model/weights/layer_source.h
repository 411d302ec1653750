// Where a pass through a model finds its layers: in memory, or brought together
// for as long as each of them is computed (common/sharding/sharded_layers.h).
#pragma once

#include <cstdint>
#include <memory>

#include "common/model/weights/weights.h"

namespace dapd {

enum class WalkKind {
  kForward,             // layers 0, 1, ..., L - 1
  kForwardAndBackward,  // and then L - 1, ..., 1, 0
};

// One pass's way through the layers. Not thread-safe. A walk may end early.
class LayerWalk {
 public:
  virtual ~LayerWalk() = default;

  // The next layer on the way, which must be layer `index`. To be let go before
  // the one after it is asked for: two layers are all there is room for.
  // Throws StatusError, and c10::OutOfMemoryError.
  virtual LayerWeights Next(int64_t index) = 0;
};

class LayerSource {
 public:
  virtual ~LayerSource() = default;

  // The walk before must have ended. Throws StatusError.
  virtual std::unique_ptr<LayerWalk> Begin(WalkKind kind) = 0;
};

// Through `weights.source` or, where there is none, `weights.layers`, which
// must outlive the walk.
std::unique_ptr<LayerWalk> WalkLayers(const ModelWeights& weights,
                                      WalkKind kind);

}  // namespace dapd
