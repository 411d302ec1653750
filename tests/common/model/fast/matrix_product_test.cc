#include "common/model/fast/matrix_product.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

// A gradient is multiplied by an adapter's matrix like this, for any rank.
TEST(MatrixProductTest, ATransposedMatrixOfFloatsIsNotRounded) {
  constexpr int64_t kTokens = 40;
  constexpr double kEntry = 1.0 + 1.0 / 4096;  // in bfloat16 it is 1
  for (const int64_t rank : {1, 3}) {
    const at::Tensor a = at::full({kTokens, rank}, kEntry, at::kFloat);
    const at::Tensor b = at::ones({kTokens, 5}, at::kBFloat16);
    at::Tensor c = at::empty({rank, 5}, at::kFloat);
    MatrixProductInto(a.t(), b, c);
    EXPECT_LT((c - kTokens * kEntry).abs().max().item<double>(), 1e-4) << rank;
  }
}

TEST(MatrixProductTest, ARowIsOneHoweverItLies) {
  const at::Tensor x = at::arange(1, 8, at::kFloat);
  const at::Tensor y = at::arange(2, 9, at::kFloat);
  for (const at::Tensor& row : {x.view({1, 7}), x.view({7, 1}).t()}) {
    for (const at::Tensor& column : {y.view({7, 1}), y.view({1, 7}).t()}) {
      EXPECT_EQ(MatrixProduct(row, column).item<double>(), 168.0);
      EXPECT_TRUE(at::equal(MatrixProduct(column, row), column * row));
    }
  }
}

}  // namespace
}  // namespace dapd
