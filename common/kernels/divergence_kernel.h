// The loss of a chunk of tokens on the CPU. Its input is the float32 logits of
// all sources (students and teachers); the gradient of the students' logits
// takes the place of these logits. It is compiled for AVX-512, AVX2 and
// baseline (cpu_features.h); divergence_entry.h has the mathematics,
// cuda/divergence_kernel.h the same for a GPU.
//
// It computes one token at a time, so that the token's rows stay in the cache:
// the statistics of every source once, however many terms share it; the derived
// sources; every term's sums; every student's gradient. The arithmetic of an
// entry is float32, sums over the vocabulary are double.
#pragma once

#include <cstdint>
#include <span>

#include "common/kernels/derived_source.h"
#include "common/kernels/divergence_entry.h"

namespace dapd {

// A source has a row of logits for every token.
struct DivergenceSource {
  float* logits = nullptr;  // row t stands at logits + t * stride
  int64_t stride = 0;       // in floats
  bool is_student = false;  // only a student's logits are written
  // On a GPU only: `logits` points to bfloat16 numbers, and `stride` counts
  // them. A row that is derived from others is never narrow.
  bool is_narrow = false;
  // The scored tokens [tokens] and room for their log-probabilities at
  // temperature 1 [tokens]; null if the log-probabilities are not needed.
  const int64_t* ids = nullptr;
  float* logprobs = nullptr;
};

// Compares a target with a student; both are indices of sources.
struct DivergenceTerm {
  int student = 0;
  int target = 0;
  DivergenceKind kind = DivergenceKind::kForwardKl;
  float beta = 0.5F;
  float clip = 0.05F;   // infinity: none
  float weight = 0.0F;  // factor of the loss in the gradient
  // The first token that counts, and a factor for each token's loss [tokens];
  // null means a factor of 1.
  int64_t first_token = 0;
  const float* token_weights = nullptr;
  // The ids of token t's support begin at support + t * support_size; null
  // means the whole vocabulary. Without a tail both sides are normalised over
  // the support.
  const int64_t* support = nullptr;
  int support_size = 0;
  bool has_tail = false;
};

// The sums of one term over one token.
struct DivergenceTokenSums {
  double clipped = 0.0;    // the loss
  double unclipped = 0.0;  // the divergence
  double mass = 0.0;       // of the gradient, before the token's weight
  bool any_clipped = false;
};

struct DivergenceChunk {
  std::span<const DivergenceSource> sources;
  std::span<const DerivedSource> derived;  // ordered so that each derives from
                                           // earlier rows
  std::span<const DivergenceTerm> terms;
  int64_t vocabulary = 0;
  float scale = 1.0F;  // 1 / temperature
  bool with_gradient = false;
  int cluster_warps = 16;  // on a GPU (cuda/divergence_plan.h)
};

// Returns the factor of a token's loss in a term.
DAPD_HOST_DEVICE inline float TokenWeight(const DivergenceTerm& term,
                                          int64_t token) {
  if (token < term.first_token) return 0.0F;
  return term.token_weights == nullptr ? 1.0F : term.token_weights[token];
}

// Computes tokens [begin, end) of a chunk: fills sums[t * terms + k] and, if
// the chunk asks for gradients, replaces the students' logits z by d(sum_k
// weight_k loss_k)/dz. Tokens are independent: threads may divide a chunk among
// them in any way, with the same result.
void DivergenceTokens(const DivergenceChunk& chunk,
                      int64_t begin,
                      int64_t end,
                      DivergenceTokenSums* sums);

// Compute e^x and log x of `count` floats as the kernel does. For tests.
void KernelExp(const float* x, int64_t count, float* result);
void KernelLog(const float* x, int64_t count, float* result);

}  // namespace dapd
