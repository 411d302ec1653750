// DecodeBackend: how sequences are computed. The engine (engine.h) decides
// which sequences run; a backend owns the weights in the form it computes with,
// the KV memory of a fixed number of slots, and the sampling, so that a backend
// on an accelerator can keep whole steps there.
//
//   Start(slot, request)   the slot is taken, with KV memory for the prompt;
//                          nothing is computed
//   Reserve(slot, tokens)  KV memory for more of the sequence
//   Step()                 prompts are prefilled (whole or in chunks), running
//                          sequences get their next tokens
//   Stop(slot)             the memory is given back; what was under way is gone
//   Resume(slot, ...)      Start for a sequence that was stopped half way
//
// The invariant of every backend: the tokens and log-probabilities of a
// sequence are a function of only the weights, the adapter and its request,
// bit for bit; not of the slot, the neighbours, the time of joining, the number
// of threads, or of being stopped and resumed.
//
// Errors of the computation (out of memory for anything else, logits that are
// not finite) are c10::Error. Not thread-safe: owned by the compute thread.
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

class DecodeBackend {
 public:
  virtual ~DecodeBackend() = default;

  virtual const ModelConfig& config() const = 0;
  virtual int64_t num_slots() const = 0;

  // Bytes of KV memory that a sequence takes once there is room for `tokens`
  // positions of it; kTooLong if this backend takes none so long. Never falls
  // with `tokens`.
  static constexpr int64_t kTooLong = std::numeric_limits<int64_t>::max();
  virtual int64_t KvBytes(int64_t tokens) const = 0;
  // Positions that one Step may compute of a sequence beyond its prompt and the
  // tokens that were returned: how far a backend runs ahead.
  virtual int64_t StepPositions() const { return 0; }
  // Bytes that all slots together may take where the configuration names no
  // limit.
  virtual int64_t DefaultKvBudget() const = 0;

  // The adapter to compute with from now on, null for the base. Only while no
  // slot is taken.
  virtual void SetAdapter(std::shared_ptr<const Adapter> adapter) = 0;

  // Takes a free slot, with room for what the first Step computes. False if
  // there is no memory: the slot stays free. The caller sees to it that the
  // prompt has at least one id, each inside the vocabulary.
  virtual bool Start(int64_t slot, DecodeRequest request) = 0;
  // As Start, for a sequence that was stopped after `answer`, its tokens so
  // far, at least one. It goes on as if it had never been stopped.
  virtual bool Resume(int64_t slot,
                      DecodeRequest request,
                      std::vector<int32_t> /*answer*/) {
    return Start(slot, std::move(request));
  }
  // Whether Step returns the tokens of a resumed sequence's `answer` once more,
  // since the sequence begins anew, or goes on behind them.
  virtual bool ResumesFromTheStart() const { return true; }
  // Makes room for the first `tokens` positions of the sequence in a taken
  // slot; what it has stays. False if there is no memory: it has what it had.
  // Before every Step the caller sees to it that each sequence has room for its
  // prompt, the tokens that were returned and StepPositions(), though not for
  // more than MaxTokens().
  virtual bool Reserve(int64_t slot, int64_t tokens) = 0;
  // Frees a slot; a free one stays free.
  virtual void Stop(int64_t slot) = 0;

  // Computes for a while: at least one token of every running sequence whose
  // prompt is done, and a part of the prompts that are not. Returns the new
  // tokens; those of one slot are in order. A backend that runs ahead may
  // return several tokens of a slot, also after an end token: the engine drops
  // what follows the end and stops the slot.
  virtual std::vector<DecodedToken> Step() = 0;

  // log p(ids[t + 1] | ids[0..t]) for t < T - 1 under the weights that Step()
  // computes with, by the same arithmetic; temperature 1. T >= 2 ids. At any
  // time; takes no slot.
  virtual std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) = 0;
};

}  // namespace dapd
