// The component clip (docs/objective.md): of the sum over the
// vocabulary that a divergence is, no entry adds more than c, and an entry that
// would passes no gradient. A tie passes gradient; NaN is never clipped away.
//
// The one place where the CPU's kernels (F a SIMD vector), the GPU's (F a
// float) and the tests (F a double) clip; divergence_entry.h says what is
// clipped. The reference implementation clips tensors (common/objective/
// divergence_by_tensors.cc).
#pragma once

#include "common/kernels/host_device.h"

namespace dapd {

// What one vocabulary entry adds to a term.
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
