// Compares products by warp groups, on a host that simulates the device, with
// float64 at the edges of tiles, slices and steps.

#include "common/kernels/cuda/bulk_product.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/cuda/kernel_inputs.h"
#include "tests/fakes/cuda/product_matrices.h"

namespace dapd {
namespace {

using fake::BitsOf;
using fake::InSeveralOrders;
using Matrices = fake::ProductMatrices;

struct BulkShape {
  int64_t rows, inner, cols;
};

void PrintTo(const BulkShape& shape, std::ostream* out) {
  *out << shape.rows << "x" << shape.inner << "x" << shape.cols;
}

// Simulates a device that has the kernel's clusters.
class BulkProductTest : public testing::TestWithParam<BulkShape> {
 protected:
  void SetUp() override {
    fake::SetTraits({.multiprocessors = 132, .largest_cluster = 8});
  }
  void TearDown() override { fake::SetTraits({}); }
};

TEST_P(BulkProductTest, IsTheProductInFloat64RoundedOnce) {
  const auto& [rows, inner, cols] = GetParam();
  Matrices matrices(rows, inner, cols);
  const CudaProduct to_float = matrices.Product(0, rows, true);
  const CudaProduct product = matrices.Product(0, rows, false);
  ASSERT_EQ(IsBulk(product), cols >= kLeastBulkCols);
  const auto sums = matrices.Sums();
  double worst = 0.0;
  InSeveralOrders([&] {
    ASSERT_KERNEL_RUNS(DapdCudaBulkProduct(&to_float, nullptr));
    ASSERT_KERNEL_RUNS(DapdCudaBulkProduct(&product, nullptr));
    const std::vector<float> in_float = matrices.FloatResult();
    const std::vector<BFloat16> result = matrices.Result();
    for (const auto& [at, sum, absolute] : sums) {
      // Each instruction for 16 numbers adds once, and the slices are added.
      const double bound =
          absolute * static_cast<double>(inner / 16 + 5 + kMostBulkSlices) *
          0x1.0p-24;
      const double error = std::abs(static_cast<double>(in_float[at]) - sum);
      worst = std::max(worst, error / bound);
      ASSERT_LE(error, bound) << "element " << at;
      ASSERT_EQ(BitsOf(result[at]), BitsOf(FromFloat<BFloat16>(in_float[at])))
          << "element " << at;
    }
  });
  std::cout << "worst error " << worst << " of the bound, " << BulkSlices(cols)
            << " slices\n";
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    BulkProductTest,
    testing::Values(
        BulkShape{1, 8, 2048},     // less than a step, most slices without work
        BulkShape{32, 520, 136},   // two tiles, the second nearly empty
        BulkShape{17, 3592, 264},  // slices longer than the ring, the last not
        BulkShape{3, 136, 6144},   // two slices
        BulkShape{2, 72, 8456}),   // one slice
    testing::PrintToStringParamName());

// A row's bits depend on neither the number of rows nor its place among them.
TEST_F(BulkProductTest, ARowsBitsAreItsOwn) {
  constexpr int64_t kRows = 32;
  constexpr int64_t kCols = 136;
  Matrices matrices(kRows, 3144, kCols);
  const CudaProduct all = matrices.Product(0, kRows, true);
  ASSERT_KERNEL_RUNS(DapdCudaBulkProduct(&all, nullptr));
  const std::vector<float> expected = matrices.FloatResult();
  for (const int64_t rows : {1, 11, 20}) {
    const CudaProduct some = matrices.Product(kRows - rows, rows, true);
    ASSERT_KERNEL_RUNS(DapdCudaBulkProduct(&some, nullptr));
    const std::vector<float> result = matrices.FloatResult();
    for (const auto& sum : matrices.Sums()) {
      ASSERT_EQ(BitsOf(result[sum.at]), BitsOf(expected[sum.at]))
          << rows << " rows, element " << sum.at;
    }
  }
}

// The launch in front may begin to write anywhere in a step or a slice.
TEST_F(BulkProductTest, WhatIsMultipliedEarlyChangesNoBits) {
  for (const BulkShape& shape :
       {BulkShape{3, 264, 136}, BulkShape{5, 3144, 136}}) {
    const auto& [rows, inner, cols] = shape;
    std::vector<float> expected;
    for (const int64_t early :
         {int64_t{0}, int64_t{8}, inner - 72, inner - 8, inner}) {
      Matrices matrices(rows, inner, cols);
      matrices.MarkEarly(early);
      CudaProduct product = matrices.Product(0, rows, true);
      product.early = early;
      ASSERT_KERNEL_RUNS(DapdCudaBulkProduct(&product, nullptr));
      std::vector<float> result;
      const std::vector<float> all = matrices.FloatResult();
      for (const auto& sum : matrices.Sums()) result.push_back(all[sum.at]);
      if (early == 0) expected = result;
      EXPECT_EQ(result, expected)
          << testing::PrintToString(shape) << ", early " << early;
      // The simulated device checks every copy.
      if (early == inner) continue;
      product.early = inner;
      EXPECT_NE(DapdCudaBulkProduct(&product, nullptr), 0);
      EXPECT_THAT(fake::TakeReport(),
                  testing::HasSubstr("before it waited for the launch before"));
    }
  }
}

TEST_F(BulkProductTest, WeightsAreReadOnceAndRowsOncePerTile) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kInner = 512;
  constexpr int64_t kCols = 2560;
  Matrices matrices(kRows, kInner, kCols);
  const CudaProduct product = matrices.Product(0, kRows, true);
  fake::TakeTraffic();
  fake::TakeLaunches();
  ASSERT_KERNEL_RUNS(DapdCudaBulkProduct(&product, nullptr));
  const fake::Traffic traffic = fake::TakeTraffic();
  EXPECT_EQ(traffic.bytes_read,
            (kCols + kCols / kBulkTile * kRows) * kInner * 2);
  EXPECT_EQ(traffic.bytes_written, kRows * kCols * sizeof(float));
  const fake::Launches launches = fake::TakeLaunches();
  EXPECT_EQ(launches.early, 1);
  EXPECT_EQ(launches.blocks, 20 * 6);
  EXPECT_EQ(launches.carveouts, std::set<int>{71});
}

TEST_F(BulkProductTest, TakesWhatFewRowsTakeIfItHasManyColumns) {
  CudaProduct product{.rows = kMaxSkinnyRows,
                      .inner = 264,
                      .cols = kLeastBulkCols,
                      .number = CudaNumber::kBFloat16};
  EXPECT_TRUE(IsBulk(product));
  product.rows = 1;
  EXPECT_TRUE(IsBulk(product)) << "the bits of a row may not change";
  product.cols = kLeastBulkCols - 1;
  EXPECT_FALSE(IsBulk(product));
  product = {.rows = 33, .cols = kLeastBulkCols};
  EXPECT_FALSE(IsBulk(product));
  for (const int major : {8, 9, 10}) {
    fake::SetTraits({.major = major});
    EXPECT_EQ(DapdCudaHasBulkProducts(), major == 9 ? 1 : 0) << major;
  }
}

}  // namespace
}  // namespace dapd
