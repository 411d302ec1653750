// The tensors of a view's payload, on their way to the host.
#pragma once

#include <c10/core/Event.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"
#include "services/teacher/scorer.h"

namespace dapd {

// The tensors by name, as teacher.proto's Payload lists them, in host memory
// (pinned if they come from a GPU). Their content is valid once the device has
// finished everything that was launched before them.
using PayloadTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Starts to compute the payload that `input` asks for from a view's final-norm
// hidden states [scored, hidden]. `head_rows`: rows whose logits are held at a
// time. Does not wait for the device.
PayloadTensors StartPayload(const ModelWeights& weights,
                            const ScoreInput& input,
                            const at::Tensor& hidden,
                            int64_t head_rows);

// Returns the scores of `view` from tensors whose content is valid.
absl::StatusOr<ViewScores> FinishPayload(ViewName view,
                                         const PayloadTensors& tensors);

// All work launched on a device so far. On the CPU there is none, because calls
// return when their work is done.
class LaunchedWork {
 public:
  explicit LaunchedWork(at::Device device);
  // Blocks until the device has finished it.
  void Wait();

 private:
  std::optional<c10::Event> event_;
};

}  // namespace dapd
