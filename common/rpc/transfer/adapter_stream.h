// The two ends of LoadAdapter (proto/dapd/v1/worker.proto): the client cuts an
// adapter into messages, the worker puts them together again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"

#include "common/base/content_digest.h"
#include "common/rpc/transfer/chunk_stream.h"
#include "common/rpc/transfer/policy_update.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/rpc/transfer/served_weights.h"
#include "dapd/v1/worker.pb.h"

namespace dapd {

// Calls `send` with the encoded LoadAdapterRequests that make `update` the set
// `set`, in order, each as soon as its content is final
// (PolicyUpdate::progress). Returns CANCELLED if `send` returns false, ABORTED
// if the update was abandoned.
absl::Status SendAdapter(
    WeightSet set,
    const PolicyUpdate& update,
    const std::function<bool(const grpc::ByteBuffer&)>& send);

struct AdapterLimits {
  uint64_t max_bytes = 0;     // of adapter_model.safetensors
  int64_t max_probe_ids = 0;  // the model's positions
  int64_t vocab_size = 0;     // probe ids lie below it
  // See WorkerDescription::weight_sets.
  std::vector<WeightSet> weight_sets = {WeightSet::kLive};
};

AdapterLimits LimitsOf(const WorkerDescription& description);

// Hashes each chunk on arrival, while it is in the cache. Not thread-safe.
class AdapterReceiver {
 public:
  explicit AdapterReceiver(const AdapterLimits& limits) : limits_(limits) {}

  // These functions return the fields of the header, once it was added.
  WeightSet set() const { return upload_.set; }
  const std::string& key() const { return upload_.key; }
  // Returns the upload that another stream with this key has brought, without
  // content.
  AdapterUpload AsServed() const;

  // Takes the next message, encoded or not. Returns INVALID_ARGUMENT for a bad
  // header, set, probe or chunk, and for an adapter beyond the limit, before
  // memory is allocated; DATA_LOSS for a corrupted chunk.
  absl::Status Add(grpc::ByteBuffer& message);
  absl::Status Add(const v1::LoadAdapterRequest& request);

  // Call it after the last message. Returns DATA_LOSS if bytes are missing or
  // their digest differs from the sender's. Uses the receiver up.
  absl::StatusOr<AdapterUpload> Finish();

 private:
  absl::Status Start(const v1::AdapterHeader& header);
  absl::Status Allocate();
  absl::Status End(const v1::AdapterEnd& end);
  template <typename Chunk>
  absl::Status AddChunk(const Chunk& chunk);

  const AdapterLimits limits_;
  bool started_ = false;
  bool ended_ = false;
  uint64_t total_bytes_ = 0;
  AdapterUpload upload_;
  std::optional<ChunkAssembler> chunks_;
  std::optional<ContentDigest> digest_;  // of the bytes in chunks_
};

// Adds encoded messages to `receiver` until `read` returns false, and finishes
// it. Returns the errors of AdapterReceiver.
absl::StatusOr<AdapterUpload> ReceiveAdapter(
    AdapterReceiver& receiver,
    const std::function<bool(grpc::ByteBuffer*)>& read);

// Returns the worker's description of itself and of the weights that it serves.
v1::DescribeResponse MakeDescribeResponse(const WorkerDescription& description,
                                          const ServedWeights& served);

// Returns the worker's answer to an upload that it now serves.
v1::LoadAdapterResponse MakeLoadAdapterResponse(const LoadResult& loaded);

}  // namespace dapd
