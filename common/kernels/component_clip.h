// The component clip (docs/objective.md). A divergence is a sum over the
// vocabulary; the clip lets no entry add more than c, and an entry that would
// add more passes no gradient. An entry of exactly c passes its gradient; the
// clip never hides a NaN.
//
// This is the only place where the CPU kernels (F a SIMD vector), the GPU
// kernels (F a float) and the tests (F a double) clip; divergence_entry.h says
// what they clip. The reference implementation clips tensors
// (common/objective/divergence_by_tensors.cc).
#pragma once

#include "common/kernels/host_device.h"

namespace dapd {

// The contribution of one vocabulary entry to a term.
template <typename F>
struct ClippedEntry {
  F component;  // k
  F clipped;    // min(k, c)
  F pull;       // e: 0 where k > c
};

template <typename F>
DAPD_HOST_DEVICE inline ClippedEntry<F> ClipComponent(F component,
                                                      F pull,
                                                      F clip) {
  const auto over = component > clip;
  return {component, over ? clip : component, over ? F{} : pull};
}

}  // namespace dapd
