// Packs weights for the workers while the optimizer still computes them: each
// tensor is sent as soon as it is final, digest and probe follow. What a worker
// ends up with is what MakePolicyUpdate would have packed, byte for byte; it
// serves it only after the digest.
#pragma once

#include <cstdint>
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

namespace dapd {

// Not thread-safe, but for the readers of update(). Hashes on a thread of its
// own.
class PolicyUpdateWriter {
 public:
  // For an adapter with the shapes and the configuration of `adapter`, whose
  // values do not matter yet. RESOURCE_EXHAUSTED if there is no memory for its
  // bytes.
  static absl::StatusOr<std::unique_ptr<PolicyUpdateWriter>> Start(
      const Adapter& adapter,
      int64_t version,
      const std::string& base_model_path,
      const std::vector<int32_t>& probe_ids,
      DigestKind digest_kind);
  // Gives the update up if it is not finished.
  ~PolicyUpdateWriter();
  PolicyUpdateWriter(const PolicyUpdateWriter&) = delete;
  PolicyUpdateWriter& operator=(const PolicyUpdateWriter&) = delete;

  // May be given to a client at once. A client that sends it waits for this
  // writer: it must be gone, or have finished, before the client is shut down.
  std::shared_ptr<const PolicyUpdate> update() const { return update_; }

  // Copies the next tensor in the adapter's order.
  absl::Status Append(const at::Tensor& tensor);

  // After the last tensor: waits for the digest, and probes `adapter`, which
  // now holds what was appended.
  void Finish(const ModelWeights& weights, const Adapter& adapter);

 private:
  PolicyUpdateWriter(std::shared_ptr<PolicyUpdate> update,
                     HostTensor buffer,
                     uint64_t header_bytes);
  void Hash();

  const std::shared_ptr<UpdateProgress> progress_;
  const std::shared_ptr<PolicyUpdate> update_;
  const HostTensor buffer_;  // of update_->adapter.tensors
  uint64_t written_ = 0;     // of it
  std::string digest_;       // once hasher_ is joined
  std::jthread hasher_;
};

}  // namespace dapd
