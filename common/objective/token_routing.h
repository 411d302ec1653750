// Which of two passes each token of a micro-batch takes as its target (Routed
// in terms/target.h: DOPD, Yu et al., arXiv 2606.30626).
#pragma once

#include <span>
#include <vector>

#include "common/tensor/aten.h"
#include "common/terms/target.h"

namespace dapd {

struct TokenRoutes {
  // One per answer, [n] each: 1 where the second pass is taken (uint8), and
  // the factor of the token's loss (float32).
  std::vector<at::Tensor> route;
  std::vector<at::Tensor> token_weights;
  at::Tensor counts;  // [kNumRegimes] int64: tokens by Regime
};

// `first`, `second`: log q of the scored tokens under both passes, [n] float32
// per answer; all answers of the micro-batch, whose averages decide. An average
// leaves out what is above the quantile 1 - trim (linear interpolation). All
// results are where `first` is, and the host waits for none of them.
TokenRoutes RouteTokens(const Routed& routed,
                        std::span<const at::Tensor> first,
                        std::span<const at::Tensor> second);

}  // namespace dapd
