#include "common/data/pass_at_k.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

// Returns the share of the k-element subsets of n answers that contain one of
// the first c answers.
double ByCounting(int n, int c, int k) {
  int with_right = 0;
  int all = 0;
  for (unsigned set = 0; set < 1u << n; ++set) {
    if (__builtin_popcount(set) != k) continue;
    ++all;
    if ((set & ((1u << c) - 1)) != 0) ++with_right;
  }
  return static_cast<double>(with_right) / all;
}

TEST(PassAtKTest, IsTheShareOfSetsWithARightAnswer) {
  for (int n = 1; n <= 8; ++n) {
    for (int c = 0; c <= n; ++c) {
      for (int k = 1; k <= n; ++k) {
        EXPECT_NEAR(PassAtK(n, c, k), ByCounting(n, c, k), 1e-12)
            << n << " " << c << " " << k;
      }
    }
  }
}

TEST(PassAtKTest, ManyAnswersDoNotOverflow) {
  EXPECT_NEAR(PassAtK(100000, 1, 100000 / 2), 0.5, 1e-9);
  EXPECT_EQ(PassAtK(100000, 0, 1000), 0.0);
  EXPECT_EQ(PassAtK(100000, 100000, 1), 1.0);
}

}  // namespace
}  // namespace dapd
