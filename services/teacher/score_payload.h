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

// By name, as teacher.proto's Payload lists them; on the host, pinned where
// they come from a GPU. What they hold is there once the device has done what
// was launched before them.
using PayloadTensors = std::vector<std::pair<std::string, at::Tensor>>;

// What `input` asks of a view's final-norm hidden states, [scored, hidden].
// `head_rows`: rows whose logits are held at a time. The host does not wait.
PayloadTensors StartPayload(const ModelWeights& weights,
                            const ScoreInput& input,
                            const at::Tensor& hidden,
                            int64_t head_rows);

// Of tensors that have come.
absl::StatusOr<ViewScores> FinishPayload(ViewName view,
                                         const PayloadTensors& tensors);

// What was launched on a device so far; nothing on the CPU, where all is done
// when it is called.
class LaunchedWork {
 public:
  explicit LaunchedWork(at::Device device);
  // Blocks until it is done.
  void Wait();

 private:
  std::optional<c10::Event> event_;
};

}  // namespace dapd
