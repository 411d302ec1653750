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

  // Gives the contiguous `tensors` of every rank the values of rank 0. Shapes
  // and dtypes must be the same on every rank. On CUDA it is one launch on the
  // current stream, for which it waits once.
  virtual absl::Status Broadcast(std::span<const at::Tensor> tensors) = 0;

  // Raw communicator for callers that capture NCCL calls in CUDA graphs; valid
  // while this group lives. There is no communicator on the CPU.
  virtual NcclRanks nccl() const { return {}; }
  // Ends the operations that run between the ranks on the device; the group
  // cannot be used afterwards. DapdNcclAbort says what holds for graphs.
  virtual void Abort() {}

  // All ranks call this at the same place. On CUDA they join a communicator,
  // whose identifier travels over `collective`, and an operation may take
  // `timeout_seconds`. NCCL takes most of its memory at its first operations,
  // so Join runs some, and whoever plans with the free memory does it after
  // Join. Without memory for that it returns RESOURCE_EXHAUSTED, or ABORTED
  // with NCCL's reason. `collective` must outlive the result.
  static absl::StatusOr<std::unique_ptr<DeviceGroup>> Join(
      Collective& collective, at::Device device, double timeout_seconds);
};

// The functions of libdapd_cuda.so that a group between CUDA devices uses.
struct NcclApi {
  decltype(&DapdNcclUniqueId) make_id = nullptr;
  decltype(&DapdNcclInit) init = nullptr;
  decltype(&DapdNcclSum) sum = nullptr;
  decltype(&DapdNcclAllGather) all_gather = nullptr;
  decltype(&DapdNcclBroadcast) broadcast = nullptr;
  decltype(&DapdNcclAbort) abort = nullptr;
  decltype(&DapdNcclDestroy) destroy = nullptr;
};

// Does what DeviceGroup::Join does between CUDA devices, with these functions.
absl::StatusOr<std::unique_ptr<DeviceGroup>> JoinNccl(Collective& collective,
                                                      at::Device device,
                                                      double timeout_seconds,
                                                      const NcclApi& api);

}  // namespace dapd
