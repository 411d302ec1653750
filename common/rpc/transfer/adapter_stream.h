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
// (PolicyUpdate::progress). CANCELLED once it returns false, ABORTED if the
// update was given up.
absl::Status SendAdapter(
    WeightSet set,
    const PolicyUpdate& update,
    const std::function<bool(const grpc::ByteBuffer&)>& send);

struct AdapterLimits {
  uint64_t max_bytes = 0;     // of adapter_model.safetensors
  int64_t max_probe_ids = 0;  // the model's positions
  int64_t vocab_size = 0;     // probe ids lie below it
  // As WorkerDescription::weight_sets.
  std::vector<WeightSet> weight_sets = {WeightSet::kLive};
};

AdapterLimits LimitsOf(const WorkerDescription& description);

// Hashes each chunk as it comes, while it is in the cache. Not thread-safe.
class AdapterReceiver {
 public:
  explicit AdapterReceiver(const AdapterLimits& limits) : limits_(limits) {}

  // What the header said; after it was added.
  WeightSet set() const { return upload_.set; }
  const std::string& key() const { return upload_.key; }
  // As if all had come, of what another upload with this key brought.
  AdapterUpload AsServed() const;

  // The next message, encoded or not. INVALID_ARGUMENT for an adapter past the
  // limit, before it is allocated, and for a bad header, set, probe or chunk;
  // DATA_LOSS for a corrupted chunk.
  absl::Status Add(grpc::ByteBuffer& message);
  absl::Status Add(const v1::LoadAdapterRequest& request);

  // After the last message. DATA_LOSS if bytes are missing or the digest of
  // what came differs from the sender's. The receiver is used up.
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
  std::optional<ContentDigest> digest_;  // of what chunks_ holds
};

// Adds encoded messages to `receiver` until `read` returns false, and finishes
// it. Errors as AdapterReceiver.
absl::StatusOr<AdapterUpload> ReceiveAdapter(
    AdapterReceiver& receiver,
    const std::function<bool(grpc::ByteBuffer*)>& read);

// What a worker says about itself and what it serves.
v1::DescribeResponse MakeDescribeResponse(const WorkerDescription& description,
                                          const ServedWeights& served);

// What a worker answers to an upload that it serves now.
v1::LoadAdapterResponse MakeLoadAdapterResponse(const LoadResult& loaded);

}  // namespace dapd
