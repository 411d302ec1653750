// A request to be decoded, one token of its answer, the whole answer, and why
// it ended: the types that the engine, the rollout workers, the trainer and the
// commands share. Between processes they travel as messages of
// proto/dapd/v1/rollout.proto. Needs neither gRPC nor LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/generation/sampling.h"

namespace dapd {

struct DecodeRequest {
  std::vector<int32_t> prompt_ids;
  SamplingParams sampling;
  SamplingKey key;
  // Whether the tokens of the prompt are scored, too (ScoredToken).
  bool score_prompt = false;

  // Returns the positions of the sequence at its longest.
  int64_t MaxTokens() const {
    return static_cast<int64_t>(prompt_ids.size()) + sampling.max_new_tokens;
  }
};

enum class FinishReason {
  kNone,    // the answer goes on
  kEos,     // its last token is an end token of the model
  kLength,  // it has max_new_tokens tokens
};

// Returns the name of a reason in files and metrics: "eos", "length"; "" for
// kNone.
absl::string_view NameOf(FinishReason reason);
// Returns nothing for any other name.
std::optional<FinishReason> FinishReasonOf(absl::string_view name);

// Returns an answer's tokens without its end token, which only kEos has; a part
// of `ids`. If there are no tokens it returns none, whatever the reason.
std::span<const int32_t> WithoutEndToken(std::span<const int32_t> ids,
                                         FinishReason reason);

// The most probable token of the whole vocabulary at a place of a text; one of
// them if there are several.
struct TopToken {
  int32_t id = 0;
  float logprob = 0.0F;  // at temperature 1
};

// How probable a model held a given token behind the tokens before it.
struct ScoredToken {
  float logprob = 0.0F;  // at temperature 1
  TopToken top;          // in its place
};

// The additional work for an answer because the memory for keys and values was
// short.
struct MemoryCost {
  int64_t recomputed_tokens = 0;  // tokens that were computed once more
  int64_t swaps = 0;              // moves of its keys and values to the host
  int64_t swapped_bytes = 0;      // bytes of these moves

  MemoryCost& operator+=(const MemoryCost& other);
};

// One new token of one request, or how it failed.
struct SampledToken {
  uint64_t id = 0;  // of the request, chosen by its submitter
  int32_t token = 0;
  float logprob = 0.0F;  // at temperature 1, unfiltered
  FinishReason finish_reason = FinishReason::kNone;
  MemoryCost cost;  // of the whole answer, with its last token
  // If it is not OK, the request has ended with it, and there is no token.
  absl::Status error;
  // If it is set, this is a token of the prompt (DecodeRequest::score_prompt).
  // They come in order, from the prompt's second token on, before the answer.
  std::optional<TopToken> prompt_top;
};

// The whole answer to one request.
struct SampledAnswer {
  std::vector<int32_t> ids;     // its end token included
  std::vector<float> logprobs;  // SampledToken::logprob of each
  FinishReason finish_reason = FinishReason::kEos;
  MemoryCost cost;
};

}  // namespace dapd
