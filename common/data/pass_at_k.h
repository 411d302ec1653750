// pass@k: how probable is it that at least one of k answers to a problem is
// right?
#pragma once

#include <cstdint>

namespace dapd {

// The unbiased estimate from n answers of which c are right (Chen et al. 2021,
// "Evaluating Large Language Models Trained on Code", eq. 1):
//   1 - C(n - c, k) / C(n, k)
// the share of the sets of k answers with a right one in them. k = 1 gives the
// share of right answers. 0 <= c <= n, 1 <= k <= n.
double PassAtK(int64_t n, int64_t c, int64_t k);

}  // namespace dapd
