// DecodeBackend computes sequences. The engine (engine.h) decides which
// sequences run; a backend owns the weights in the form it computes with, the
// KV memory of a fixed number of slots, and the sampling, so that a backend on
// an accelerator can keep whole steps there.
//
//   Start(slot, request)   takes the slot, with KV memory for the prompt;
//                          computes nothing
//   Reserve(slot, tokens)  takes KV memory for more of the sequence
//   Step()                 prefills prompts (whole or in chunks) and gives
//                          running sequences their next tokens
//   Stop(slot)             gives the memory back; work under way is dropped
//   Resume(slot, ...)      is Start for a sequence that was stopped half way
//   SwapOut(slot, key)     is Stop, but what was computed is kept on the host,
//   SwapIn(slot, key, ..)  from where the sequence continues
//
// Every backend has this invariant: the tokens and log-probabilities of a
// sequence are a function of the weights, the adapter and its request only, bit
// for bit. They do not depend on the slot, the neighbours, the time of joining,
// the number of threads, or on being stopped and resumed or swapped.
//
// Errors of the computation (no memory for anything but a sequence, logits that
// are not finite) are c10::Error. Not thread-safe: owned by the compute thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/generation/decode_request.h"
#include "common/model/spec/model_config.h"
#include "common/model/weights/adapter.h"

namespace dapd {

// One new token of the sequence in a slot.
struct DecodedToken {
  int64_t slot = 0;
  int32_t token = 0;
  float logprob = 0.0F;  // at temperature 1 over the whole vocabulary
};

// Thrown by the backend of each of several ranks when one of them finds no
// memory. All ranks throw it at the same place and can go on.
class WantOnARank final : public c10::OutOfMemoryError {
 public:
  using OutOfMemoryError::OutOfMemoryError;
};

class DecodeBackend {
 public:
  virtual ~DecodeBackend() = default;

  virtual const ModelConfig& config() const = 0;
  virtual int64_t num_slots() const = 0;

  // Returns the bytes of KV memory that a sequence takes once it has room for
  // `tokens` positions; kTooLong if this backend takes no sequence of that
  // length. It never decreases with `tokens`.
  static constexpr int64_t kTooLong = std::numeric_limits<int64_t>::max();
  virtual int64_t KvBytes(int64_t tokens) const = 0;
  // Returns how many positions of a sequence one Step may compute beyond its
  // prompt and the returned tokens, which is how far a backend runs ahead.
  virtual int64_t StepPositions() const { return 0; }
  // Returns the bytes that all slots together may take if the configuration
  // sets no limit.
  virtual int64_t DefaultKvBudget() const = 0;

  // Returns the bytes that kept sequences may take on the host if the
  // configuration sets no limit; 0: this backend keeps none.
  virtual int64_t DefaultSwapBudget() const { return 0; }

  // Sets the adapter to compute with from now on, null for the base. Must be
  // called only while no slot is taken and no sequence is kept, because the
  // keys and values of a sequence are valid under one adapter only.
  virtual void SetAdapter(std::shared_ptr<const Adapter> adapter) = 0;

  // Takes a free slot, with room for what the first Step computes. Returns
  // false if there is no memory; the slot then stays free. The caller ensures
  // that the prompt has at least one id and that each is inside the vocabulary.
  virtual bool Start(int64_t slot, DecodeRequest request) = 0;
  // Starts a sequence that was stopped after `answer`, its tokens so far, at
  // least one. It continues as if it had never been stopped.
  virtual bool Resume(int64_t slot,
                      DecodeRequest request,
                      std::vector<int32_t> /*answer*/) {
    return Start(slot, std::move(request));
  }
  // Returns whether Step returns the tokens of a resumed sequence's `answer`
  // once more, because the sequence starts from its beginning; otherwise it
  // continues after them.
  virtual bool ResumesFromTheStart() const { return true; }
  // Makes room for the first `tokens` positions of the sequence in a taken
  // slot; its data stays. Returns false, without a change, if there is no
  // memory. Before every Step the caller ensures that each sequence has room
  // for its prompt, the returned tokens and StepPositions(), but at most for
  // MaxTokens().
  virtual bool Reserve(int64_t slot, int64_t tokens) = 0;
  // Frees a slot; a free slot stays free.
  virtual void Stop(int64_t slot) = 0;

  // Frees a slot and keeps its sequence in memory of the host under `key`,
  // which no kept sequence has: keys and values, the state of sampling, and
  // tokens that no Step has returned yet. Returns the bytes that are kept; 0 if
  // nothing is, because this backend keeps none, the prompt is not computed
  // yet, or the host has no memory.
  virtual int64_t SwapOut(int64_t slot, uint64_t /*key*/) {
    Stop(slot);
    return 0;
  }
  // Takes a free slot for a kept sequence, with room for its first `tokens`
  // positions, of which there are as many as Reserve would be asked for. Step
  // continues after the tokens that it returned before SwapOut. Returns false,
  // and keeps the sequence, if the device has no memory.
  virtual bool SwapIn(int64_t /*slot*/, uint64_t /*key*/, int64_t /*tokens*/) {
    return false;
  }
  // Forgets a kept sequence; a key without a sequence is ignored.
  virtual void DropSwapped(uint64_t /*key*/) {}

  // Computes for a while: at least one token of every running sequence whose
  // prompt is done, and a part of the other prompts. Returns the new tokens;
  // the tokens of one slot are in order. A backend that runs ahead may return
  // several tokens of a slot, also after an end token: the engine drops the
  // tokens after the end and stops the slot.
  virtual std::vector<DecodedToken> Step() = 0;

  // Returns log p(ids[t + 1] | ids[0..t]) for t < T - 1 under the weights that
  // Step() computes with, by the same arithmetic, at temperature 1. T >= 2 ids.
  // It may be called at any time and takes no slot.
  virtual std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) = 0;
};

}  // namespace dapd
