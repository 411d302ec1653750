// GenerationEngine: continuous batching. Decides which sequences run in the
// slots of a backend (decode_backend.h), and when each has ended.
//
// Admission by memory: a sequence starts when a slot is free and the KV memory
// of its longest outcome fits what the running ones leave of the budget, in the
// order of submission. What could never fit is refused by name; what does not
// fit yet waits. So memory is never the reason for a failure half way.
//
// Not thread-safe: owned by the compute thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"

#include "common/generation/decode_backend.h"
#include "common/generation/decode_request.h"
#include "common/model/weights/adapter.h"

namespace dapd {

struct EngineOptions {
  // Longest prompt plus answer. 0: the model's max_positions.
  int64_t max_length = 0;
  // KV memory of all sequences together, in bytes. 0: the backend's default.
  int64_t kv_memory_bytes = 0;
};

class GenerationEngine {
 public:
  GenerationEngine(std::unique_ptr<DecodeBackend> backend,
                   EngineOptions options);

  // The adapter to sample with, null for the base. Only while idle.
  void SetAdapter(std::shared_ptr<const Adapter> adapter);

  // Accepts a request into a free place, of which there are as many as slots.
  // `id` must be unique among the running. INVALID_ARGUMENT if the prompt is
  // empty, has an id outside the vocabulary, if prompt + max_new_tokens exceed
  // max_length, or if they need more KV memory than there is;
  // RESOURCE_EXHAUSTED if no place is free.
  absl::Status Submit(uint64_t id, DecodeRequest request);

  // Drops a sequence; unknown ids are ignored.
  void Cancel(uint64_t id);

  // Starts what fits, lets the backend compute, and returns the new tokens. A
  // sequence ends with an end token of the model or at max_new_tokens, and
  // frees its place. Throws c10::Error if the weights give logits that are not
  // finite.
  std::vector<SampledToken> Step();

  // The log-probabilities of a text under what Step() samples from
  // (DecodeBackend::ScoreTokens). At any time.
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) {
    return backend_->ScoreTokens(ids);
  }

  int64_t num_running() const;  // waiting for memory included
  int64_t num_free() const;
  int64_t kv_memory_bytes() const { return kv_memory_bytes_; }

 private:
  struct Waiting {
    uint64_t id = 0;
    DecodeRequest request;
  };
  struct Sequence {
    uint64_t id = 0;
    int64_t kv_bytes = 0;
    int64_t max_new_tokens = 0;
    int64_t num_tokens = 0;
  };

  void StartWaiting();
  void Free(int64_t slot);
  // What a new token means for its sequence; nothing if that has ended.
  std::optional<SampledToken> Receive(const DecodedToken& token);

  const std::unique_ptr<DecodeBackend> backend_;
  const EngineOptions options_;
  const int64_t kv_memory_bytes_;
  int64_t kv_bytes_in_use_ = 0;
  std::vector<std::optional<Sequence>> slots_;  // by slot of the backend
  std::deque<Waiting> waiting_;
};

}  // namespace dapd
