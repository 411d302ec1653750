// GenerationEngine: continuous batching. It decides which sequences run in the
// slots of a backend (decode_backend.h), and when each has ended.
//
// Memory. A sequence holds KV memory for its present length and takes more as
// it grows. Sequences start in the order of submission, when a slot is free and
// the budget has room for the sequence and for a little growth of all running
// sequences. If memory runs out, the youngest running sequence gives its memory
// back and waits at the head of the queue. It is resumed when there is room:
// its answer is the same, bit for bit (decode_backend.h), and no token is
// returned twice. The oldest sequence never gives way, so it always ends;
// Submit refuses a request that would not fit even alone. A backend that
// resumes from the start computes the earlier tokens again. If a device runs
// out of memory in the middle of a step, all running sequences start again,
// half as many side by side until none waits; an answer that finds too little
// memory even alone ends with an error, and the others continue.
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
  // The longest prompt plus answer. 0 means the model's max_positions.
  int64_t max_length = 0;
  // KV memory of all sequences together, in bytes. 0 means the backend's
  // default.
  int64_t kv_memory_bytes = 0;
};

class GenerationEngine {
 public:
  GenerationEngine(std::unique_ptr<DecodeBackend> backend,
                   EngineOptions options);

  // Sets the adapter to sample with, null for the base. Must be called only
  // while idle.
  void SetAdapter(std::shared_ptr<const Adapter> adapter);

  // Accepts a request into a free place; there are as many places as slots.
  // `id` must be unique among the accepted requests that have not ended.
  // Returns INVALID_ARGUMENT if the prompt is empty or has an id outside the
  // vocabulary, or if prompt + max_new_tokens exceed max_length or what the
  // backend takes; RESOURCE_EXHAUSTED if they need more KV memory than the
  // whole budget, or if no place is free.
  absl::Status Submit(uint64_t id, DecodeRequest request);

  // Drops a sequence; unknown ids are ignored.
  void Cancel(uint64_t id);

  // Makes room, starts the sequences that fit, lets the backend compute, and
  // returns the new tokens, possibly none. A sequence ends with an end token of
  // the model, at max_new_tokens or with an error (SampledToken), and frees its
  // place. Throws c10::Error if the weights give logits that are not finite, or
  // if the device fails.
  std::vector<SampledToken> Step();

  // Returns the log-probabilities of a text under the weights that Step()
  // samples from (DecodeBackend::ScoreTokens). It may be called at any time.
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) {
    return backend_->ScoreTokens(ids);
  }

  int64_t num_running() const;  // running or waiting for memory
  int64_t num_free() const;
  KvUse kv_use() const;

 private:
  struct Sequence {
    uint64_t id = 0;
    DecodeRequest request;
    std::vector<int32_t> answer;  // the tokens that Step() returned
    int64_t num_scored = 0;       // tokens of the prompt that it returned
    // The following fields are valid while it runs.
    int64_t slot = 0;
    int64_t num_given = 0;  // answer tokens from the backend; it may lag behind
    int64_t num_scores_given = 0;  // from the backend; it may lag behind
    int64_t kv_bytes = 0;          // room that it has in the backend
  };
  // Sequences by the number of their submission, so the oldest is first.
  using Sequences = std::map<uint64_t, Sequence>;

  // Return the positions, and their bytes, that the backend needs room for if
  // the next step begins with `tokens` tokens of the answer.
  int64_t PositionsAt(const Sequence& sequence, int64_t tokens) const;
  int64_t KvBytesAt(const Sequence& sequence, int64_t tokens) const;
  // Makes room for the next step of all running sequences, the oldest first.
  void GrowRunning(std::vector<SampledToken>* events);
  // Makes room for the sequence's next step. Returns false if there is no
  // memory.
  bool Grow(uint64_t number, Sequence& sequence);
  // Lets a running sequence wait for memory; it keeps its answer.
  void PutBack(Sequences::iterator running);
  // Ends a running sequence for lack of memory.
  void Refuse(Sequences::iterator running, std::vector<SampledToken>* events);
  void StartWaiting(std::vector<SampledToken>* events);
  // Runs the backend's step. Returns nothing if the device ran out of memory.
  std::vector<DecodedToken> Compute(std::vector<SampledToken>* events);
  bool FitsBesideRunning(const Sequence& next) const;
  // Starts or resumes a sequence. Returns false if there is no memory.
  bool StartIn(int64_t slot, Sequence& sequence);
  // Frees the sequence's memory in the backend and its part of the budget.
  void Free(Sequences::iterator running);
  // Frees a sequence for good, so that others may start.
  void End(Sequences::iterator running);
  // Applies a new token to its sequence. Returns nothing if the sequence has
  // ended.
  std::optional<SampledToken> Receive(const DecodedToken& token);
  // The same for a token of a prompt. Returns nothing if it was returned before
  // the sequence gave way.
  static std::optional<SampledToken> ReceiveScore(const DecodedToken& token,
                                                  Sequence& sequence);

  const std::unique_ptr<DecodeBackend> backend_;
  const EngineOptions options_;
  KvBudget budget_;  // holders are the numbers of sequences
  uint64_t num_submitted_ = 0;
  Sequences running_;
  Sequences waiting_;
  std::vector<std::optional<uint64_t>> slots_;  // number of the sequence, by
                                                // slot
  // The backend found no memory although the budget had room. Nothing more
  // starts until a sequence has ended.
  bool memory_is_out_ = false;
  // The largest number of sequences side by side. When a step finds no memory,
  // this becomes half of the number that ran; it is lifted when none waits.
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  size_t most_running_ = kNoLimit;
  int64_t num_restarts_ = 0;
};

}  // namespace dapd
