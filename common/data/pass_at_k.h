// Estimates pass@k: the probability that at least one of k answers to a problem
// is right.
#pragma once

#include <cstdint>

namespace dapd {

// Returns the unbiased estimate from n answers of which c are right (Chen et
// al. 2021, "Evaluating Large Language Models Trained on Code", eq. 1):
//   1 - C(n - c, k) / C(n, k)
// This is the share of the sets of k answers that contain a right answer; with
// k = 1 it is the share of right answers. Requires 0 <= c <= n and 1 <= k <= n.
double PassAtK(int64_t n, int64_t c, int64_t k);

}  // namespace dapd
