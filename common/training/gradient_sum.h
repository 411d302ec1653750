// GradientSum: adds up the ranks' gradients, where they are: on CUDA over NCCL
// between the devices, on CPU over the Collective.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/torch.h"

#include "common/collective/collective.h"

namespace dapd {

class GradientSum {
 public:
  virtual ~GradientSum() = default;

  // `gradient`: float32, one dimension, contiguous, the same length on every
  // rank; becomes the sum. Errors as Collective's.
  virtual absl::Status Add(at::Tensor& gradient) = 0;

  // Called by all ranks at the same place: on CUDA they join a communicator,
  // whose identifier travels over `collective`. `collective` must outlive the
  // result.
  static absl::StatusOr<std::unique_ptr<GradientSum>> Create(
      Collective& collective, at::Device device, double timeout_seconds);
};

}  // namespace dapd
