// GenerationEngine: continuous batching. Decides which sequences run in the
// slots of a backend (decode_backend.h), and when each has ended.
//
// Memory. A sequence holds KV memory for its present length and takes more as
// it grows. It starts, in the order of submission, when a slot is free and its
// size and a little growth of all that run fit the budget. Where memory runs
// out, the youngest that runs gives its own back and waits at the head of the
// queue, to be resumed when there is room: with the same answer, bit for bit
// (decode_backend.h), of which no token is returned twice. The oldest never
// has to, so that it always ends, and what could not fit even alone is refused
// by name. A backend that resumes from the start computes the tokens again
// that it had. Where a device runs out in the middle of a step, all that run
// begin again, half as many side by side until none waits; an answer for which
// there is not enough even alone ends with an error, by itself.
//
// Not thread-safe: owned by the compute thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"

#include "common/generation/decode_backend.h"
#include "common/generation/decode_request.h"
#include "common/generation/kv_budget.h"
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
  // empty, has an id outside the vocabulary, or if prompt + max_new_tokens
  // exceed max_length or what the backend takes; RESOURCE_EXHAUSTED if they
  // need more KV memory than there is here, or if no place is free.
  absl::Status Submit(uint64_t id, DecodeRequest request);

  // Drops a sequence; unknown ids are ignored.
  void Cancel(uint64_t id);

  // Makes room, starts what fits, lets the backend compute, and returns the new
  // tokens, of which there may be none. A sequence ends with an end token of
  // the model, at max_new_tokens or with an error (SampledToken), and frees its
  // place. Throws c10::Error if the weights give logits that are not finite, or
  // the device fails.
  std::vector<SampledToken> Step();

  // The log-probabilities of a text under what Step() samples from
  // (DecodeBackend::ScoreTokens). At any time.
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) {
    return backend_->ScoreTokens(ids);
  }

  int64_t num_running() const;  // waiting for memory included
  int64_t num_free() const;
  KvUse kv_use() const;

 private:
  struct Sequence {
    uint64_t id = 0;
    DecodeRequest request;
    std::vector<int32_t> answer;  // the tokens that Step() returned
    // While it runs:
    int64_t slot = 0;
    int64_t num_given = 0;  // of the answer, by the backend; it may lag behind
    int64_t kv_bytes = 0;   // that it has room for in the backend
  };
  // By the number of their submission: the oldest first.
  using Sequences = std::map<uint64_t, Sequence>;

  // Positions that the backend needs room for when the next step begins with
  // `tokens` of the answer, and their bytes.
  int64_t PositionsAt(const Sequence& sequence, int64_t tokens) const;
  int64_t KvBytesAt(const Sequence& sequence, int64_t tokens) const;
  // Room for the next step of all that run, the oldest first.
  void GrowRunning(std::vector<SampledToken>* events);
  // False: there is no memory.
  bool Grow(uint64_t number, Sequence& sequence);
  // It waits for memory, with the answer that it has.
  void PutBack(Sequences::iterator running);
  // It ends for want of memory.
  void Refuse(Sequences::iterator running, std::vector<SampledToken>* events);
  void StartWaiting(std::vector<SampledToken>* events);
  // The backend's step; nothing if the device ran out of memory.
  std::vector<DecodedToken> Compute(std::vector<SampledToken>* events);
  bool FitsBesideRunning(const Sequence& next) const;
  // False: there is no memory.
  bool StartIn(int64_t slot, Sequence& sequence);
  // The backend's memory for it, and its part of the budget.
  void Free(Sequences::iterator running);
  // The same for good: others may start.
  void End(Sequences::iterator running);
  // What a new token means for its sequence; nothing if that has ended.
  std::optional<SampledToken> Receive(const DecodedToken& token);

  const std::unique_ptr<DecodeBackend> backend_;
  const EngineOptions options_;
  KvBudget budget_;  // holders: numbers of sequences
  uint64_t num_submitted_ = 0;
  Sequences running_;
  Sequences waiting_;
  std::vector<std::optional<uint64_t>> slots_;  // whose number; by slot
  // The backend found none though the budget had room. Nothing more starts
  // until a sequence has ended.
  bool memory_is_out_ = false;
  // As many may run side by side: half of those for which a step had no memory,
  // until none waits.
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  size_t most_running_ = kNoLimit;
  int64_t num_restarts_ = 0;
};

}  // namespace dapd
