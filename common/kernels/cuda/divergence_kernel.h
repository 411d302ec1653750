// The loss of a chunk of tokens on the GPU: the passes of
// common/kernels/divergence_kernel.h over float32 logits, with the same
// arithmetic (divergence_entry.h; launch.h has the conventions). Each source's
// maximum and sum of exponentials, each term's sums, each student's gradient in
// place.
//
// Two forms. Where the device has clusters and a token's rows fit into the
// shared memory of one, its blocks read every logit once and write every
// gradient once (divergence_cluster.h): of two students, three teachers and
// three terms 5 floats read and 2 numbers written, 24 bytes a token and
// vocabulary entry with gradients in bfloat16. Everywhere else a block takes a
// token and reads its rows from memory for every pass, 16 floats a token and
// entry (5 + 6 + 5): the slow twin.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"
#include "common/kernels/divergence_kernel.h"
#include "common/kernels/host_device.h"

namespace dapd {

inline constexpr int kCudaMaxSources = 16;
inline constexpr int kCudaMaxTerms = 16;
inline constexpr int kCudaMaxDerived = 4;
// Entries of all supports of a call together.
inline constexpr int kCudaMaxSupport = 1024;

struct CudaDivergenceArgs {
  DivergenceSource sources[kCudaMaxSources];
  DivergenceTerm terms[kCudaMaxTerms];
  DerivedSource derived[kCudaMaxDerived];
  int num_sources = 0;
  int num_derived = 0;
  int num_terms = 0;
  int64_t num_tokens = 0;
  int64_t vocabulary = 0;
  float scale = 1.0F;  // 1 / temperature
  bool with_gradient = false;
  // What the gradient is written as. bfloat16 fills the first half of a row's
  // memory, so that such a row is 2 * stride numbers from the next.
  CudaNumber gradient = CudaNumber::kFloat32;
  DivergenceTokenSums* sums = nullptr;  // [tokens, terms]
};

// Whether a source's row is made of others'.
DAPD_HOST_DEVICE inline bool IsDerived(const CudaDivergenceArgs& args,
                                       int source) {
  for (int d = 0; d < args.num_derived; ++d) {
    if (args.derived[d].source == source) return true;
  }
  return false;
}

extern "C" {
int DapdCudaDivergence(const CudaDivergenceArgs* args, void* stream);

// How many tokens such a call computes at a time on the current device: chunks
// of a multiple of it leave nothing idle at their end. Rows need not be there
// yet; a source with `logits` null counts as one whose rows are aligned.
int64_t DapdCudaDivergenceTokens(const CudaDivergenceArgs* args);
}

}  // namespace dapd
