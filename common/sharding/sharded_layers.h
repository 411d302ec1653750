// ShardedLayers: a base of which each rank holds a part, layer by layer whole
// for as long as it is computed. While one layer is computed, the next one is
// gathered. On a GPU that goes on on a stream beside the one that computes, the
// same for all walks, and the gather of layer i + 2 begins on the device behind
// what reads layer i, so that two layers are in memory however far the host is
// ahead.
//
// A layer is gathered by all ranks together, and they need not have the same
// work. So each walk begins with an agreement, in which a rank with a pass to
// compute says so; all then gather every layer of the walk, those without a
// pass of their own as well (ServeOthers). A rank whose pass ends early, for
// want of memory say, still gathers the rest of the walk. On a GPU so does one
// without memory for the next layer itself: its pass ends with
// c10::OutOfMemoryError, and the layer is gathered where the pass was. If there
// is no room even then, the others wait for it in vain, so nothing more begins.
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
// `devices`, which must outlive the walks.
class ShardedLayers final : public LayerSource {
 public:
  // `side`: that of the weights' device (MakeSideStream); null: on the CPU.
  ShardedLayers(std::shared_ptr<const ShardedWeights> weights,
                Collective& collective,
                DeviceGroup& devices,
                std::unique_ptr<SideStream> side);

  // Blocks until every rank is here or in ServeOthers. Throws StatusError with
  // the Collective's errors, and RESOURCE_EXHAUSTED where a layer before found
  // no room.
  std::unique_ptr<LayerWalk> Begin(WalkKind kind) override;

  // Takes part in the walks of other ranks until no rank begins one. To be
  // called by all ranks at the places where each of them has done its passes.
  absl::Status ServeOthers();

  // Seconds that the passes of this rank have waited, for other ranks to begin
  // and for layers that were not there yet.
  double wait_seconds() const { return wait_seconds_; }

 private:
  // The longest walk that any rank wants; none if all serve.
  absl::StatusOr<std::optional<WalkKind>> Agree(std::optional<WalkKind> wanted);

  const std::shared_ptr<const ShardedWeights> weights_;
  Collective& collective_;
  DeviceGroup& devices_;
  const std::unique_ptr<SideStream> side_;
  double wait_seconds_ = 0.0;
  absl::Status failure_;  // of a walk, which leaves this rank out of step
};

// What computes with the base: its embedding, final norm and head, the layers
// by way of `source`.
std::shared_ptr<const ModelWeights> WithLayersFrom(
    const ShardedWeights& weights, std::shared_ptr<LayerSource> source);

}  // namespace dapd
