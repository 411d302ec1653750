// The loss of a chunk of tokens on the GPU: the passes of
// common/kernels/divergence_kernel.h over float32 logits, with the same
// arithmetic (divergence_entry.h; launch.h has the conventions). A call
// computes each source's maximum and sum of exponentials, each term's sums, and
// each student's gradient in place.
//
// There are two forms. Where the device has clusters and a token's rows fit
// into the shared memory of one cluster, its blocks read every logit once and
// write every gradient once (divergence_cluster.h). With two students, three
// teachers and three terms that is 5 floats read and 2 numbers written, 24
// bytes per token and vocabulary entry with gradients in bfloat16. Everywhere
// else a block takes a token and reads its rows from memory for every pass, 16
// floats per token and entry (5 + 6 + 5); this form is the slow twin.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"
#include "common/kernels/divergence_kernel.h"
#include "common/kernels/host_device.h"

namespace dapd {

inline constexpr int kCudaMaxSources = 16;
inline constexpr int kCudaMaxTerms = 16;
inline constexpr int kCudaMaxDerived = 4;
// The largest number of entries in all supports of a call together.
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
  // The number type of the gradient. A bfloat16 gradient fills the first half
  // of the memory of a row of float32 logits, so its rows are 2 * stride
  // numbers apart; it fills the whole memory of a row of bfloat16 logits.
  CudaNumber gradient = CudaNumber::kFloat32;
  int cluster_warps = 16;  // of a block, 16 or 32 (divergence_plan.h)
  DivergenceTokenSums* sums = nullptr;  // [tokens, terms]
};

// Returns whether a source's row is derived from other rows.
DAPD_HOST_DEVICE inline bool IsDerived(const CudaDivergenceArgs& args,
                                       int source) {
  for (int d = 0; d < args.num_derived; ++d) {
    if (args.derived[d].source == source) return true;
  }
  return false;
}

// Returns whether some sources give bfloat16 logits.
inline bool HasNarrow(const CudaDivergenceArgs& args) {
  for (int s = 0; s < args.num_sources; ++s) {
    if (args.sources[s].is_narrow) return true;
  }
  return false;
}

extern "C" {
// If a source is narrow, `gradient` must be bfloat16.
int DapdCudaDivergence(const CudaDivergenceArgs* args, void* stream);

// Returns how many tokens such a call computes at a time on the current device.
// With chunks of a multiple of that number nothing is idle at their end. The
// rows need not exist yet; a source with null `logits` counts as one with
// aligned rows.
int64_t DapdCudaDivergenceTokens(const CudaDivergenceArgs* args);
}

}  // namespace dapd
