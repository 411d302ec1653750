// Sampler: what the rollout worker needs of a model. The real one
// (engine_sampler.h) is a GenerationEngine; tests use a fake.
//
// Not thread-safe: owned by the worker's compute thread. Errors that come from
// the computation itself (out of memory, ...) are Status, not exceptions.
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
  // the old ones stay. Only while no sequence runs.
  virtual absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) = 0;
  // Probes the weights that are served, at any time.
  virtual absl::StatusOr<AppliedAdapter> Probe(
      const std::vector<int32_t>& probe_ids) = 0;

  // Takes a slot, of which one must be free. `id` must be unique among the
  // running. INVALID_ARGUMENT for a prompt that the model cannot take.
  virtual absl::Status Submit(uint64_t id, DecodeRequest request) = 0;
  // Frees the slot of a sequence; unknown ids are ignored.
  virtual void Cancel(uint64_t id) = 0;
  // Decodes one token of each running sequence that has KV memory, of some
  // devices several, of a sequence that had to give its memory back maybe none;
  // ended ones free their slots.
  virtual absl::StatusOr<std::vector<SampledToken>> Step() = 0;

  virtual int64_t num_free() const = 0;
  virtual KvUse kv_use() const = 0;
};

}  // namespace dapd
