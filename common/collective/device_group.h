// DeviceGroup exchanges tensors between the ranks: over NCCL between CUDA
// devices, over the Collective on the CPU. All ranks call the same operations
// in the same order, one at a time and not during an operation of the
// Collective. It returns the errors of the Collective.
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

  // Replaces `values` by the sum over all ranks. `values` is float32,
  // one-dimensional, contiguous and of the same length on every rank.
  virtual absl::Status Sum(at::Tensor& values) = 0;

  // Returns each of the contiguous `parts` from all ranks as [size, part...],
  // by rank. Shapes and dtypes must be the same on every rank. On CUDA it is
  // one launch on the current stream, for which it waits once.
  virtual absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> parts) = 0;

  // Raw communicator for callers that capture NCCL calls in CUDA graphs; valid
  // while this group lives. There is no communicator on the CPU.
  virtual NcclRanks nccl() const { return {}; }
  // Ends the operations that run between the ranks on the device; the group
  // cannot be used afterwards. DapdNcclAbort says what holds for graphs.
  virtual void Abort() {}

  // All ranks call this at the same place. On CUDA they join a communicator,
  // whose identifier travels over `collective`, and an operation may take
  // `timeout_seconds`. `collective` must outlive the result.
  static absl::StatusOr<std::unique_ptr<DeviceGroup>> Join(
      Collective& collective, at::Device device, double timeout_seconds);
};

}  // namespace dapd
