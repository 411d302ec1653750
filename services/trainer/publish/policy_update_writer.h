// PolicyUpdateWriter: packs weights for the workers while the optimizer still
// computes them. Each tensor is sent as soon as it is final; digest and probe
// follow. The workers get the bytes that MakePolicyUpdate would have packed,
// and serve them only after the digest.
//
// On a GPU the optimizer takes little time, so all tensors are copied together
// after the last one: one copy into one page-locked buffer, on a side stream,
// while the probe is computed.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/content_digest.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/rpc/transfer/policy_update.h"
#include "common/tensor/host_tensor.h"
#include "common/tensor/side_stream.h"

namespace dapd {

// Not thread-safe, except for the readers of update(). Hashes on a thread of
// its own.
class PolicyUpdateWriter {
 public:
  // `adapter`: gives the shapes and the configuration; its values do not matter
  // yet. `key`: PolicyUpdate::key. `side`: of the adapter's device, must
  // outlive the writer; null: on the CPU. Returns RESOURCE_EXHAUSTED if there
  // is no memory for the bytes.
  static absl::StatusOr<std::unique_ptr<PolicyUpdateWriter>> Start(
      const Adapter& adapter,
      int64_t version,
      const std::string& key,
      const std::vector<int32_t>& probe_ids,
      DigestKind digest_kind,
      SideStream* side);
  // Gives up an update that is not finished.
  ~PolicyUpdateWriter();
  PolicyUpdateWriter(const PolicyUpdateWriter&) = delete;
  PolicyUpdateWriter& operator=(const PolicyUpdateWriter&) = delete;

  // Returns the update, which may be given to a client at once. A client that
  // sends it waits for this writer, so the writer must finish or be destroyed
  // before the client is shut down.
  std::shared_ptr<const PolicyUpdate> update() const { return update_; }

  // Copies the next tensor in the adapter's order. From a GPU all are copied
  // with the last one, and none may change until then.
  absl::Status Append(const at::Tensor& tensor);

  // After the last tensor: probes `adapter`, which now holds the appended
  // values, and waits for the digest. Returns an error if a copy failed.
  absl::Status Finish(const ModelWeights& weights, const Adapter& adapter);

 private:
  PolicyUpdateWriter(std::shared_ptr<PolicyUpdate> update,
                     HostTensor buffer,
                     uint64_t header_bytes,
                     SideStream* side);
  absl::Status AppendFromHost(const at::Tensor& tensor);
  // Copies all appended tensors from the device.
  absl::Status StartCopy();
  // Runs on the hasher's thread: waits until the copy is done, and publishes
  // its progress.
  absl::Status WaitForCopy();
  void Hash();

  const std::shared_ptr<UpdateProgress> progress_;
  const std::shared_ptr<PolicyUpdate> update_;
  const HostTensor buffer_;  // of update_->adapter.tensors
  const uint64_t header_bytes_;
  SideStream* const side_;
  uint64_t written_ = 0;              // bytes of the buffer
  std::vector<at::Tensor> appended_;  // on a device
  at::Tensor flat_;  // appended_ in one tensor, until it is copied
  // The point of the stream after the copy; null: the copy was given up.
  std::promise<std::unique_ptr<StreamPoint>> copied_;
  bool has_begun_copy_ = false;
  absl::Status outcome_;  // of the hasher and the copy, once hasher_ is joined
  std::string digest_;    // likewise
  std::jthread hasher_;
};

}  // namespace dapd
