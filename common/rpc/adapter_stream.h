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

#include "common/rpc/chunk_stream.h"
#include "common/rpc/policy_update.h"
#include "common/rpc/served_policy.h"
#include "dapd/v1/worker.pb.h"

namespace dapd {

// Calls `send` with the messages that carry `update`, in order, until it
// returns false. Returns false then.
bool SendAdapter(
    const PolicyUpdate& update,
    const std::function<bool(const v1::LoadAdapterRequest&)>& send);

struct AdapterLimits {
  uint64_t max_bytes = 0;     // of adapter_model.safetensors
  int64_t max_probe_ids = 0;  // the model's positions
  int64_t vocab_size = 0;     // probe ids lie below it
};

// Not thread-safe.
class AdapterReceiver {
 public:
  explicit AdapterReceiver(const AdapterLimits& limits) : limits_(limits) {}

  // The next message. RESOURCE_EXHAUSTED for an adapter past the limit, before
  // it is allocated; INVALID_ARGUMENT for a bad header, probe or chunk;
  // DATA_LOSS for a corrupted chunk.
  absl::Status Add(const v1::LoadAdapterRequest& request);

  // After the last message. DATA_LOSS if bytes are missing or the digest of
  // what came differs from the header's. The receiver is used up.
  absl::StatusOr<AdapterUpload> Finish();

 private:
  absl::Status Start(const v1::AdapterHeader& header);

  const AdapterLimits limits_;
  bool started_ = false;
  AdapterUpload upload_;
  std::optional<ChunkAssembler> chunks_;
};

// The whole of LoadAdapter's receiving side: reads with `read` until it returns
// false. Errors as AdapterReceiver.
absl::StatusOr<AdapterUpload> ReceiveAdapter(
    const WorkerDescription& description,
    const std::function<bool(v1::LoadAdapterRequest*)>& read);

// What a worker says about itself and what it serves.
v1::DescribeResponse MakeDescribeResponse(const WorkerDescription& description,
                                          const ServedPolicy& served);

// What a worker answers to an upload that it serves now.
v1::LoadAdapterResponse MakeLoadAdapterResponse(const ServedPolicy& served,
                                                const AppliedAdapter& applied);

}  // namespace dapd
