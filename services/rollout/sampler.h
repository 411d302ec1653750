// Sampler: the interface of the rollout worker to a model. The real sampler
// (engine_sampler.h) is a GenerationEngine; tests use a fake.
//
// Not thread-safe: the worker's compute thread owns it. Errors of the
// computation itself (out of memory, ...) are Status, not exceptions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/generation/decode_request.h"
#include "common/generation/kv_budget.h"
#include "common/rpc/transfer/served_policy.h"

namespace dapd {

class Sampler {
 public:
  virtual ~Sampler() = default;

  // Samples with the uploaded weights from now on, and probes them. On error
  // the weights stay as they were. Only while no sequence runs.
  virtual absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) = 0;
  // Probes the served weights, at any time.
  virtual absl::StatusOr<AppliedAdapter> Probe(
      const std::vector<int32_t>& probe_ids) = 0;

  // Takes a free slot, of which there must be one. `id` must be unique among
  // the running sequences. Returns INVALID_ARGUMENT for a prompt that the model
  // cannot take.
  virtual absl::Status Submit(uint64_t id, DecodeRequest request) = 0;
  // Frees the slot of a sequence; unknown ids are ignored.
  virtual void Cancel(uint64_t id) = 0;
  // Decodes one token of each running sequence that has KV memory; several on
  // some devices; possibly none of a sequence that had to release its memory. A
  // sequence that ends frees its slot.
  virtual absl::StatusOr<std::vector<SampledToken>> Step() = 0;

  virtual int64_t num_free() const = 0;
  virtual KvUse kv_use() const = 0;
};

}  // namespace dapd
