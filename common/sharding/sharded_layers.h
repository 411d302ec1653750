// ShardedLayers provides the whole layers of a base of which each rank holds a
// part; a layer exists as a whole only while it is computed. While one layer is
// computed, the next layer is gathered. On a GPU the gathers of all walks run
// on one stream beside the computing stream, and the gather of layer i + 2
// begins on the device after the reads of layer i, so that two layers are in
// memory however far the host is ahead.
//
// All ranks gather a layer together, but they need not have the same work. So
// each walk begins with an agreement, in which every rank that has a pass to
// compute says so; then all ranks gather every layer of the walk, also the
// ranks without a pass (ServeOthers). A rank whose pass ends early, for example
// for lack of memory, still gathers the rest of the walk. On a GPU, if a rank
// has no memory for the next layer itself, its pass ends with
// c10::OutOfMemoryError, and the layer is gathered into the memory of the pass.
// If there is no room even then, the other ranks wait for the layer in vain,
// and no further walk begins.
//
//   rank 0   Begin .... pass ....   Begin .... pass ....   ServeOthers
//   rank 1   Begin .... pass ....   ServeOthers ........................
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/collective/device_group.h"
#include "common/model/weights/layer_source.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/side_stream.h"

namespace dapd {

// Not thread-safe. While a walk lasts, nothing else may use `collective` or
// `devices`. Both must outlive the walks.
class ShardedLayers final : public LayerSource {
 public:
  // `side` is the side stream of the weights' device (MakeSideStream), null on
  // the CPU.
  ShardedLayers(std::shared_ptr<const ShardedWeights> weights,
                Collective& collective,
                DeviceGroup& devices,
                std::unique_ptr<SideStream> side);

  // Blocks until every rank is here or in ServeOthers. Throws StatusError with
  // the Collective's errors, and with RESOURCE_EXHAUSTED if an earlier layer
  // found no room.
  std::unique_ptr<LayerWalk> Begin(WalkKind kind) override;

  // Takes part in the walks of other ranks until no rank begins one. All ranks
  // must call it whenever they have done their passes.
  absl::Status ServeOthers();

  // Returns the seconds that the passes of this rank have waited for other
  // ranks to begin and for layers to be gathered.
  double wait_seconds() const { return wait_seconds_; }

 private:
  // Returns the longest walk that any rank wants, or nothing if all ranks
  // serve.
  absl::StatusOr<std::optional<WalkKind>> Agree(std::optional<WalkKind> wanted);

  const std::shared_ptr<const ShardedWeights> weights_;
  Collective& collective_;
  DeviceGroup& devices_;
  const std::unique_ptr<SideStream> side_;
  double wait_seconds_ = 0.0;
  absl::Status failure_;  // of a walk; the rank is then out of step
};

// Returns weights to compute with: the embedding, final norm and head of the
// base, and the layers of `source`.
std::shared_ptr<const ModelWeights> WithLayersFrom(
    const ShardedWeights& weights, std::shared_ptr<LayerSource> source);

}  // namespace dapd
