// Which of two passes each token of a micro-batch takes as its target (Routed
// in terms/target.h: DOPD, Yu et al., arXiv 2606.30626).
#pragma once

#include <array>
#include <cstdint>
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
  std::array<int64_t, kNumRegimes> counts = {};  // tokens by Regime
};

// `first`, `second`: log q of the scored tokens under both passes, [n] float32
// per answer; all answers of the micro-batch, whose averages decide. An average
// leaves out what is above the quantile 1 - trim (linear interpolation).
TokenRoutes RouteTokens(const Routed& routed,
                        std::span<const at::Tensor> first,
                        std::span<const at::Tensor> second);

}  // namespace dapd
