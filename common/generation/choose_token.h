// SampleToken and LogProbability (sampling.h, the reference implementation)
// without sorting the vocabulary: the same token and its log-probability, in
// two vectorised passes over the logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/generation/sampling.h"
#include "common/kernels/decode_kernels.h"

namespace dapd {

struct ChosenToken {
  int32_t token = 0;
  float logprob = 0.0F;  // temperature 1, whole vocabulary; to about 1e-6
};

// Arguments as SampleToken's, and exactly its token. Nothing where a logit is
// not finite. Thread-safe.
//
// The k-th largest of the maxima of chunks of logits is a bound that at least k
// logits reach; only those are sorted, then drawn from as SampleToken does.
// Without top_k every token may be drawn; the mass of all takes a third pass,
// and the most probable are ranked until they decide the draw.
std::optional<ChosenToken> ChooseToken(const DecodeKernels& kernels,
                                       std::span<const float> logits,
                                       int64_t num_tokens,
                                       const SamplingParams& params,
                                       double uniform);

// log softmax(logits)[id], as LogProbability, where `largest` is the largest
// logit.
float FastLogProbability(const DecodeKernels& kernels,
                         std::span<const float> logits,
                         float largest,
                         int32_t id);

}  // namespace dapd
