// Sampling on the GPU, without sorting the vocabulary and without the host:
// logits in, and the slot's next token is where the next decode step reads it
// (sampling_math.h has the arithmetic, launch.h the conventions).
//
// Two launches. The first cuts each row into slices: maximum, sum of
// exponentials and the slice's best top_k. The second merges the slices, picks,
// records token and log-probability, moves the sequence on and takes its row
// out of the batch when it has ended.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// A slot's sequence, in device memory. The sampler counts `num_sampled` up.
struct CudaSequence {
  uint64_t seed = 0;  // of SamplingKey, like the next three
  uint32_t step = 0;
  uint32_t example = 0;
  uint32_t sample = 0;
  int32_t top_k = 0;         // 0: all
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;
  int32_t max_new_tokens = 0;
  int32_t num_sampled = 0;
  // Tokens to take instead of sampling, to score them; they end nowhere early.
  const int32_t* forced = nullptr;  // [max_new_tokens] or null
};

// What was sampled. Token -1: the logits were not finite, the sequence ended.
struct CudaSampled {
  int32_t token = 0;
  float logprob = 0.0F;  // at temperature 1 over the whole vocabulary
};

// The last tokens of a slot: number i lies at [slot][i % kSampledRing].
inline constexpr int64_t kSampledRing = 32;

// Tokens of a slice of a row of logits, and bytes of what the first launch
// finds of it.
inline constexpr int64_t kSampleSliceTokens = 8192;
inline constexpr int64_t kSampleSliceBytes = 536;

// Bytes that a launch over so many rows works in.
constexpr int64_t SampleScratch(int64_t rows, int64_t vocab) {
  return rows * ((vocab + kSampleSliceTokens - 1) / kSampleSliceTokens) *
         kSampleSliceBytes;
}

struct SampleArgs {
  int64_t num_rows = 0;
  int32_t* slot_of_row = nullptr;     // as in CudaRows; -1 where a row ended
  int32_t* positions = nullptr;       // [slots], moved on by one
  int32_t* tokens = nullptr;          // [slots], the new tokens
  CudaSequence* sequences = nullptr;  // [slots]
  CudaSampled* sampled = nullptr;     // [slots, kSampledRing]
  const float* logits = nullptr;      // [rows, vocab]
  void* scratch = nullptr;            // DapdCudaSampleScratch
  int64_t vocab = 0;
  int64_t num_tokens = 0;  // ids from here on are never sampled
  const int32_t* end_tokens = nullptr;
  int64_t num_end_tokens = 0;
  // The logits come by a gather of NCCL's, whose kernels wait for other
  // devices: the first launch begins in turn.
  bool behind_a_gather = false;
};

extern "C" {
// Bytes of scratch, as SampleScratch.
int64_t DapdCudaSampleScratch(int64_t rows, int64_t vocab);
int DapdCudaSample(const SampleArgs* args, void* stream);
}

}  // namespace dapd
