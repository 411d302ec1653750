// GenerationEngine: continuous batching. It decides which sequences run in the
// slots of a backend (decode_backend.h), and when each has ended.
//
// Memory. A sequence holds KV memory for its present length and takes more as
// it grows. Sequences start in the order of submission, when a slot is free and
// the budget will probably hold the sequence and all running sequences until
// they end: a little growth of each and, once an answer has ended, at every
// later time the bytes that are expected then (length_forecast.h), with one
// standard deviation more. If memory runs out all the same, the youngest
// running sequence gives its memory back and waits at the head of the queue.
// Its keys and values move to the host (DecodeBackend::SwapOut), and back when
// there is room. Its answer is the same, bit for bit, and no token is
// returned twice. The oldest sequence never gives way, so it always ends;
// Submit refuses a request that would not fit even alone.
//
// If the host has no memory either, or the backend keeps nothing, the sequence
// is computed again: by a prefill of prompt and answer, or token by token by a
// backend that resumes from the start. If a device runs out of memory in the
// middle of a step, all running sequences start again, half as many side by
// side until none waits; an answer that finds too little memory even alone ends
// with an error, and the others continue.
//
// Not thread-safe: owned by the compute thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "common/generation/decode_backend.h"
#include "common/generation/decode_request.h"
#include "common/generation/kv_budget.h"
#include "common/generation/length_forecast.h"
#include "common/model/weights/adapter.h"

namespace dapd {

struct EngineOptions {
  // The longest prompt plus answer. 0 means the model's max_positions.
  int64_t max_length = 0;
  // KV memory of all sequences together, in bytes. 0 means the backend's
  // default.
  int64_t kv_memory_bytes = 0;
  // Memory of the host for the keys and values of sequences that gave theirs
  // back. None: the backend's default. 0: nothing is kept.
  std::optional<int64_t> swap_memory_bytes = {};
};

class GenerationEngine {
 public:
  GenerationEngine(std::unique_ptr<DecodeBackend> backend,
                   EngineOptions options);

  // Sets the adapter to sample with, null for the base. Must be called only
  // while idle: neither running nor kept keys and values outlive an adapter.
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
    int64_t num_scores_given = 0;  // likewise, scores of the prompt
    int64_t kv_bytes = 0;          // room that it has in the backend
    // Whether it waits and the backend keeps it on the host; num_given and
    // num_scores_given are then valid, too.
    bool is_swapped = false;
    MemoryCost cost;
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
  // Lets a running sequence wait for memory; it keeps its answer. PutBack keeps
  // on the host what it has computed, if there is room; Restart does not.
  void PutBack(Sequences::iterator running);
  void Restart(Sequences::iterator running);
  // Moves a running sequence to the host, and frees its slot and its memory.
  // Returns false if it was not kept; its slot may be free then.
  bool SwapOut(uint64_t number, Sequence& sequence);
  // Forgets a sequence that waits.
  void Drop(Sequences::iterator waiting);
  // Ends a running sequence for lack of memory.
  void Refuse(Sequences::iterator running, std::vector<SampledToken>* events);
  void StartWaiting(std::vector<SampledToken>* events);
  // Runs the backend's step. Returns nothing if the device ran out of memory.
  std::vector<DecodedToken> Compute(std::vector<SampledToken>* events);
  bool FitsBesideRunning(const Sequence& next);
  // Returns the tokens of each answer that has not ended.
  std::vector<int64_t> OpenLengths() const;
  // Returns the most bytes that `sequences` are expected to hold at a time,
  // while each takes a token in every step until it ends, with a standard
  // deviation.
  double ExpectedPeak(std::span<const Sequence* const> sequences) const;
  // Starts or resumes a sequence. Returns false if there is no memory.
  bool StartIn(int64_t slot, uint64_t number, Sequence& sequence);
  bool SwapIn(int64_t slot, uint64_t number, Sequence& sequence);
  // Adds a cost to the sequence's and to that of all answers.
  void Charge(const MemoryCost& cost, Sequence& sequence);
  // Frees a sequence's slot and its part of the budget; the backend must have
  // freed the slot.
  void Leave(uint64_t number, const Sequence& sequence);
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
  // Holders are the numbers of sequences.
  KvBudget budget_;
  KvBudget host_budget_;  // of kept sequences
  LengthForecast forecast_;
  uint64_t num_submitted_ = 0;
  Sequences running_;
  Sequences waiting_;
  std::vector<std::optional<uint64_t>> slots_;  // number of the sequence, by
                                                // slot
  // The backend found no memory although the budget had room, or one sequence
  // more was expected to be too many. Nothing more starts until a sequence has
  // ended.
  bool memory_is_out_ = false;
  // The largest number of sequences side by side. When a step finds no memory,
  // this becomes half of the number that ran; it is lifted when none waits.
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  size_t most_running_ = kNoLimit;
  int64_t num_restarts_ = 0;
  MemoryCost cost_;
};

}  // namespace dapd
