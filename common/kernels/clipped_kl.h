// The loss of a chunk of tokens on the CPU, from the float32 logits of all its
// sources (students and teachers) to the gradient of the students' logits,
// which takes the place of these logits. AVX-512, AVX2 or baseline
// (cpu_features.h); clipped_kl_row.h has the mathematics, cuda/clipped_kl.h the
// same for a GPU.
//
// One token at a time in three passes, so that its rows stay in the cache: the
// statistics of every source once, however many terms share it; every term's
// sums; every student's gradient. Per-entry arithmetic in float32, sums over
// the vocabulary in double.
#pragma once

#include <cstdint>
#include <span>

#include "common/kernels/clipped_kl_row.h"

namespace dapd {

// A teacher against a student; both are indices of sources.
struct KlTerm {
  int student = 0;
  int teacher = 0;
  float clip = 0.05F;   // infinity: none
  float weight = 0.0F;  // factor of the loss in the gradient
};

// Of one term over one token.
struct KlSums {
  double clipped = 0.0;    // the loss
  double unclipped = 0.0;  // the KL divergence
  double kept_mass = 0.0;  // sum_v q_v m_v
  bool any_clipped = false;
};

struct KlSource {
  float* logits = nullptr;  // row t stands at logits + t * stride
  int64_t stride = 0;       // in floats
  bool is_student = false;  // only a student's logits are written
};

struct KlChunk {
  std::span<const KlSource> sources;
  std::span<const KlTerm> terms;
  int64_t vocabulary = 0;
  float scale = 1.0F;  // 1 / temperature
  bool with_gradient = false;
};

// Tokens [begin, end) of a chunk: fills sums[t * terms + k] and, if asked for,
// replaces the students' logits z by d(sum_k weight_k loss_k)/dz. Tokens are
// independent: threads may share a chunk, and who takes which changes nothing.
void ClippedKlTokens(const KlChunk& chunk,
                     int64_t begin,
                     int64_t end,
                     KlSums* sums);

// e^x of `count` floats as the kernel computes it, for tests.
void KernelExp(const float* x, int64_t count, float* result);

}  // namespace dapd
