// DeviceGroup: what the ranks tell each other in tensors, where these are: over
// NCCL between CUDA devices, on the CPU over the Collective. All ranks call the
// same operations in the same order, one at a time, not beside one of the
// Collective; errors are the Collective's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/collective/nccl_api.h"
#include "common/tensor/aten.h"

namespace dapd {

class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  // `values`: float32, one dimension, contiguous, the same length on every
  // rank; becomes the sum over all ranks.
  virtual absl::Status Sum(at::Tensor& values) = 0;

  // From each rank's contiguous `parts`, of the same shapes and dtypes
  // everywhere, those of all ranks, each [size, part...], by rank. On CUDA as
  // one launch on the current stream, which it waits for once.
  virtual absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> parts) = 0;

  // For who launches operations of NCCL's himself, as parts of a graph; without
  // a communicator on the CPU. It ends with this.
  virtual NcclRanks nccl() const { return {}; }
  // Ends what runs between the ranks on the device; nothing more can be done
  // with this. Graphs as for DapdNcclAbort.
  virtual void Abort() {}

  // Called by all ranks at the same place: on CUDA they join a communicator,
  // whose identifier travels over `collective`, and an operation may take
  // `timeout_seconds`. `collective` must outlive the result.
  static absl::StatusOr<std::unique_ptr<DeviceGroup>> Join(
      Collective& collective, at::Device device, double timeout_seconds);
};

}  // namespace dapd
