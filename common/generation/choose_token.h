// Does what SampleToken and LogProbability (sampling.h, the reference
// implementation) do without sorting the vocabulary: it gives the same token
// and its log-probability in two vectorised passes over the logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/generation/sampling.h"
#include "common/kernels/decode_kernels.h"

namespace dapd {

struct ChosenToken {
  int32_t token = 0;
  float logprob = 0.0F;  // temperature 1, whole vocabulary; error about 1e-6
};

// Takes the arguments of SampleToken and returns exactly its token. Returns
// nothing if a logit is not finite. Thread-safe.
//
// The k-th largest of the maxima of chunks of logits is a bound that at least k
// logits reach; only these logits are sorted, then drawn from like in
// SampleToken. Without top_k every token may be drawn: a third pass sums the
// mass of all, and the most probable tokens are ranked until they decide the
// draw.
std::optional<ChosenToken> ChooseToken(const DecodeKernels& kernels,
                                       std::span<const float> logits,
                                       int64_t num_tokens,
                                       const SamplingParams& params,
                                       double uniform);

// Returns log softmax(logits)[id] like LogProbability. `largest` is the largest
// logit.
float FastLogProbability(const DecodeKernels& kernels,
                         std::span<const float> logits,
                         float largest,
                         int32_t id);

}  // namespace dapd
