#include "common/data/pass_at_k.h"

namespace dapd {

double PassAtK(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1.0;
  // Multiplies the quotient of the binomials factor by factor, so that nothing
  // overflows.
  double none_right = 1.0;
  for (int64_t i = n - c + 1; i <= n; ++i) {
    none_right *= 1.0 - static_cast<double>(k) / static_cast<double>(i);
  }
  return 1.0 - none_right;
}

}  // namespace dapd
