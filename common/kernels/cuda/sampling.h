// Sampling on the GPU, without sorting the vocabulary and without the host. The
// input is logits; the slot's next token is written where the next decode step
// reads it (sampling_math.h has the arithmetic, launch.h the conventions).
//
// There are two launches. The first cuts each row into slices and finds each
// slice's maximum, sum of exponentials and best top_k. The second merges the
// slices, picks a token, records it with its log-probability, moves the
// sequence on and takes its row out of the batch when the sequence has ended.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// A slot's sequence, in device memory. The sampler increments `num_sampled`.
struct CudaSequence {
  uint64_t seed = 0;  // of SamplingKey, like the next three fields
  uint32_t step = 0;
  uint32_t example = 0;
  uint32_t sample = 0;
  int32_t top_k = 0;         // 0: all
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;
  int32_t max_new_tokens = 0;
  int32_t num_sampled = 0;
  // The tokens to take instead of sampling, in order to score them. Such a
  // token never ends the sequence before max_new_tokens.
  const int32_t* forced = nullptr;  // [max_new_tokens] or null
};

// A sampled token. Token -1 says that the logits were not finite and the
// sequence ended.
struct CudaSampled {
  int32_t token = 0;
  float logprob = 0.0F;  // at temperature 1 over the whole vocabulary
};

// The ring of a slot's last tokens: token number i lies at [slot][i %
// kSampledRing].
inline constexpr int64_t kSampledRing = 32;

// The number of tokens in a slice of a row of logits, and the bytes of the
// first launch's results for a slice.
inline constexpr int64_t kSampleSliceTokens = 8192;
inline constexpr int64_t kSampleSliceBytes = 536;

// Returns the bytes that a launch over `rows` rows works in.
constexpr int64_t SampleScratch(int64_t rows, int64_t vocab) {
  return rows * ((vocab + kSampleSliceTokens - 1) / kSampleSliceTokens) *
         kSampleSliceBytes;
}

struct SampleArgs {
  int64_t num_rows = 0;
  int32_t* slot_of_row = nullptr;     // as in CudaRows; -1 where a row ended
  int32_t* positions = nullptr;       // [slots], incremented
  int32_t* tokens = nullptr;          // [slots], the new tokens
  CudaSequence* sequences = nullptr;  // [slots]
  CudaSampled* sampled = nullptr;     // [slots, kSampledRing]
  const float* logits = nullptr;      // [rows, vocab]
  void* scratch = nullptr;            // DapdCudaSampleScratch
  int64_t vocab = 0;
  int64_t num_tokens = 0;  // ids from here on are never sampled
  const int32_t* end_tokens = nullptr;
  int64_t num_end_tokens = 0;
  // True if a gather of NCCL produced the logits. Its kernels wait for other
  // devices, so the first launch then begins in turn.
  bool behind_a_gather = false;
};

extern "C" {
// Returns the bytes of scratch (SampleScratch).
int64_t DapdCudaSampleScratch(int64_t rows, int64_t vocab);
int DapdCudaSample(const SampleArgs* args, void* stream);
}

}  // namespace dapd
