// Packs weights for the workers while the optimizer still computes them: each
// tensor is sent as soon as it is final, digest and probe follow. What a worker
// ends up with is what MakePolicyUpdate would have packed, byte for byte; it
// serves it only after the digest.
//
// From a GPU, where the optimizer takes no time to speak of, all tensors come
// together behind the last of them: one copy into one page-locked buffer, on a
// stream beside the one that computes, while the probe is computed.
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

// Not thread-safe, but for the readers of update(). Hashes on a thread of its
// own.
class PolicyUpdateWriter {
 public:
  // For an adapter with the shapes and the configuration of `adapter`, whose
  // values do not matter yet. `key`: PolicyUpdate::key. `side`: that of the
  // adapter's device, must outlive the writer; null: on the CPU.
  // RESOURCE_EXHAUSTED if there is no memory for its bytes.
  static absl::StatusOr<std::unique_ptr<PolicyUpdateWriter>> Start(
      const Adapter& adapter,
      int64_t version,
      const std::string& key,
      const std::vector<int32_t>& probe_ids,
      DigestKind digest_kind,
      SideStream* side);
  // Gives the update up if it is not finished.
  ~PolicyUpdateWriter();
  PolicyUpdateWriter(const PolicyUpdateWriter&) = delete;
  PolicyUpdateWriter& operator=(const PolicyUpdateWriter&) = delete;

  // May be given to a client at once. A client that sends it waits for this
  // writer: it must be gone, or have finished, before the client is shut down.
  std::shared_ptr<const PolicyUpdate> update() const { return update_; }

  // Copies the next tensor in the adapter's order; from a GPU with the last
  // one, until when none may change.
  absl::Status Append(const at::Tensor& tensor);

  // After the last tensor: probes `adapter`, which now holds what was appended,
  // and waits for the digest. An error if a copy failed.
  absl::Status Finish(const ModelWeights& weights, const Adapter& adapter);

 private:
  PolicyUpdateWriter(std::shared_ptr<PolicyUpdate> update,
                     HostTensor buffer,
                     uint64_t header_bytes,
                     SideStream* side);
  absl::Status AppendFromHost(const at::Tensor& tensor);
  // All that was appended, from the device.
  absl::Status StartCopy();
  // On the hasher's thread: until the copy is there, and everybody knows.
  absl::Status WaitForCopy();
  void Hash();

  const std::shared_ptr<UpdateProgress> progress_;
  const std::shared_ptr<PolicyUpdate> update_;
  const HostTensor buffer_;  // of update_->adapter.tensors
  const uint64_t header_bytes_;
  SideStream* const side_;
  uint64_t written_ = 0;              // of the buffer, or appended for it
  std::vector<at::Tensor> appended_;  // on a device
  at::Tensor flat_;  // all of them, for as long as they are copied
  // The place behind the copy; null: it was given up.
  std::promise<std::unique_ptr<StreamPoint>> copied_;
  bool has_begun_copy_ = false;
  absl::Status outcome_;  // of the hasher and the copy, once hasher_ is joined
  std::string digest_;    // likewise
  std::jthread hasher_;
};

}  // namespace dapd
