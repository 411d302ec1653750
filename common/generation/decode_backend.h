// DecodeBackend: how sequences are computed. The engine (engine.h) decides
// which sequences run; a backend owns the weights in the form it computes with,
// the KV memory of a fixed number of slots, and the sampling, so that a backend
// on an accelerator can keep whole steps there.
//
//   Start(slot, request)   the slot's KV memory is taken, nothing is computed
//   Step()                 prompts are prefilled (whole or in chunks), running
//                          sequences get their next tokens
//   Stop(slot)             the memory is given back; what was under way is gone
//
// The invariant of every backend: the tokens and log-probabilities of a
// sequence are a function of only the weights, the adapter and its request,
// bit for bit; not of the slot, the neighbours, the time of joining or the
// number of threads.
//
// Errors of the computation (out of memory, logits that are not finite) are
// c10::Error. Not thread-safe: owned by the compute thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
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

  // Bytes of KV memory that a sequence of at most `max_tokens` positions takes;
  // kTooLong if this backend takes none so long.
  static constexpr int64_t kTooLong = std::numeric_limits<int64_t>::max();
  virtual int64_t KvBytes(int64_t max_tokens) const = 0;
  // Bytes that all slots together may take where the configuration names no
  // limit.
  virtual int64_t DefaultKvBudget() const = 0;

  // The adapter to compute with from now on, null for the base. Only while no
  // slot is taken.
  virtual void SetAdapter(std::shared_ptr<const Adapter> adapter) = 0;

  // Takes a free slot. The caller sees to it that the memory budget holds and
  // that the prompt has at least one id, each inside the vocabulary.
  virtual void Start(int64_t slot, DecodeRequest request) = 0;
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
