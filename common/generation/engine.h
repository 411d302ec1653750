// GenerationEngine: decodes several sequences side by side over one KV cache.
//
// A fixed number of slots; every decode step computes all of them, empty ones
// included, so that a sequence's bits do not depend on its neighbours (matrix
// libraries choose their summation order by shape). A prompt is prefilled alone
// for the same reason. Sequences join and leave between steps.
//
// Not thread-safe: owned by the compute thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/generation/sampling.h"
#include "common/model/adapter.h"
#include "common/model/weights.h"

namespace dapd {

struct EngineOptions {
  int64_t slots = 8;
  // Longest prompt plus answer. 0: the model's max_positions.
  int64_t max_length = 0;
  int64_t num_tokens = 0;  // ids the tokenizer knows; the rest is never sampled
};

struct GenerationInput {
  uint64_t id = 0;  // chosen by the caller, unique among the running
  std::vector<int32_t> prompt_ids;
  SamplingParams sampling;
  SamplingKey key;
};

enum class FinishReason { kNone, kEos, kLength };

// One new token of one sequence.
struct TokenEvent {
  uint64_t id = 0;
  int32_t token = 0;
  float logprob = 0.0F;  // at temperature 1, unfiltered
  FinishReason finish = FinishReason::kNone;
};

class GenerationEngine {
 public:
  GenerationEngine(std::shared_ptr<const ModelWeights> weights,
                   EngineOptions options);
  ~GenerationEngine();

  // The adapter to sample with, null for the base. Only while idle.
  void SetAdapter(std::shared_ptr<const Adapter> adapter);

  // Takes a free slot. INVALID_ARGUMENT if the prompt is empty, has an id
  // outside the vocabulary, or prompt + max_new_tokens exceed max_length;
  // RESOURCE_EXHAUSTED if no slot is free.
  absl::Status Submit(GenerationInput input);

  // Drops a sequence; unknown ids are ignored.
  void Cancel(uint64_t id);

  // Prefills what joined, decodes one token for each running sequence, and
  // returns the new tokens. A sequence ends with an end token of the model or
  // at max_new_tokens, and frees its slot. Throws c10::Error if the weights give
  // logits that are not finite.
  std::vector<TokenEvent> Step();

  int64_t num_running() const;
  int64_t num_free() const;

 private:
  struct Sequence;

  // Samples the next token of `sequence` from `logits` and reports it.
  TokenEvent SampleNext(Sequence& sequence, const at::Tensor& logits);
  std::vector<TokenEvent> DecodeRunning();

  const std::shared_ptr<const ModelWeights> weights_;
  const EngineOptions options_;
  std::shared_ptr<const Adapter> adapter_;
  std::vector<std::unique_ptr<Sequence>> slots_;  // null: free
};

}  // namespace dapd
