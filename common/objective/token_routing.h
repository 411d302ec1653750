// Decides which of two passes each token of a micro-batch takes as its target
// (Routed in terms/target.h: DOPD, Yu et al., arXiv 2606.30626).
#pragma once

#include <span>
#include <vector>

#include "common/tensor/aten.h"
#include "common/terms/target.h"

namespace dapd {

struct TokenRoutes {
  // One tensor per answer, [n] each. `route` (uint8) is 1 where the second pass
  // is taken; `token_weights` (float32) is the factor of the token's loss.
  std::vector<at::Tensor> route;
  std::vector<at::Tensor> token_weights;
  at::Tensor counts;  // [kNumRegimes] int64: tokens by Regime
};

// `first` and `second` are log q of the scored tokens under both passes, [n]
// float32 per answer, for all answers of the micro-batch, whose averages
// decide. An average leaves out the values above the quantile 1 - trim (linear
// interpolation). All results are on the device of `first`, and the host does
// not wait for them.
TokenRoutes RouteTokens(const Routed& routed,
                        std::span<const at::Tensor> first,
                        std::span<const at::Tensor> second);

}  // namespace dapd
