// Compares products of few rows, on a host that simulates the device, with
// float64 at the edges of tiles, slices and steps.

#include "common/kernels/cuda/skinny_product.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <utility>
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

struct Shape {
  int64_t rows, inner, cols;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.rows << "x" << shape.inner << "x" << shape.cols;
}

// The number of slices follows from an H100's multiprocessors.
class OnH100 : public testing::Test {
 protected:
  OnH100() { fake::SetTraits({.multiprocessors = 132}); }
  ~OnH100() override { fake::SetTraits({}); }
};
class SkinnyProductTest : public OnH100,
                          public testing::WithParamInterface<Shape> {};
class SkinnyProductBitsTest : public OnH100 {};

TEST_P(SkinnyProductTest, IsTheProductInFloat64RoundedOnce) {
  const auto& [rows, inner, cols] = GetParam();
  Matrices matrices(rows, inner, cols);
  const CudaProduct to_float = matrices.Product(0, rows, true);
  const CudaProduct product = matrices.Product(0, rows, false);
  ASSERT_TRUE(IsSkinny(product));
  const auto sums = matrices.Sums();
  double worst = 0.0;
  InSeveralOrders([&] {
    ASSERT_KERNEL_RUNS(DapdCudaSkinnyProduct(&to_float, nullptr));
    ASSERT_KERNEL_RUNS(DapdCudaSkinnyProduct(&product, nullptr));
    const std::vector<float> in_float = matrices.FloatResult();
    const std::vector<BFloat16> result = matrices.Result();
    for (const auto& [at, sum, absolute] : sums) {
      // Each instruction for 16 numbers adds once, and the slices are added.
      const double bound =
          absolute * static_cast<double>(inner / 16 + 18) * 0x1.0p-24;
      const double error = std::abs(static_cast<double>(in_float[at]) - sum);
      worst = std::max(worst, error / bound);
      ASSERT_LE(error, bound) << "element " << at;
      ASSERT_EQ(BitsOf(result[at]), BitsOf(FromFloat<BFloat16>(in_float[at])))
          << "element " << at;
    }
  });
  std::cout << "worst error " << worst << " of the bound\n";
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    SkinnyProductTest,
    testing::Values(
        Shape{1, 8, 8},       // less than a step and a tile
        Shape{3, 40, 24},     // a step and a part, one tile and a half
        Shape{8, 1032, 16},   // 16 slices of more than a step
        Shape{9, 72, 40},     // two tiles of rows
        Shape{32, 136, 72},   // all rows
        Shape{17, 264, 8},    // half a tile of columns
        Shape{5, 336, 1048},  // slices of 8, the last without work
        Shape{2, 200, 4232},  // slices of 4, the last less than a step
        Shape{2, 136, 8456},  // slices of 2
        // These slices are longer than the loads that are under way.
        Shape{3, 5000, 8},
        Shape{2, 2600, 1032},
        Shape{1, 840, 4232},
        Shape{1, 264, 16904}),  // one slice
    testing::PrintToStringParamName());

// A row's bits depend on neither the number of rows nor its place among them.
TEST_F(SkinnyProductBitsTest, ARowsBitsAreItsOwn) {
  constexpr int64_t kRows = 32;
  constexpr int64_t kCols = 24;
  Matrices matrices(kRows, 1064, kCols);
  const CudaProduct all = matrices.Product(0, kRows, true);
  ASSERT_KERNEL_RUNS(DapdCudaSkinnyProduct(&all, nullptr));
  const std::vector<float> expected = matrices.FloatResult();
  for (const int64_t rows : {1, 3, 11, 20}) {
    const CudaProduct some = matrices.Product(kRows - rows, rows, true);
    ASSERT_KERNEL_RUNS(DapdCudaSkinnyProduct(&some, nullptr));
    const std::vector<float> result = matrices.FloatResult();
    for (const auto& sum : matrices.Sums()) {
      ASSERT_EQ(BitsOf(result[sum.at]), BitsOf(expected[sum.at]))
          << rows << " rows, element " << sum.at;
    }
  }
}

// The launch in front may begin to write anywhere in a step or a slice.
TEST_F(SkinnyProductBitsTest, WhatIsMultipliedEarlyChangesNone) {
  for (const Shape& shape : {Shape{3, 1032, 16}, Shape{17, 336, 1048}}) {
    const auto& [rows, inner, cols] = shape;
    std::vector<float> expected;
    for (const int64_t early : {int64_t{0},
                                int64_t{8},
                                inner / 2 / 8 * 8,
                                inner - 72,
                                inner - 64,
                                inner - 8,
                                inner}) {
      Matrices matrices(rows, inner, cols);
      matrices.MarkEarly(early);
      CudaProduct product = matrices.Product(0, rows, true);
      product.early = early;
      ASSERT_KERNEL_RUNS(DapdCudaSkinnyProduct(&product, nullptr));
      std::vector<float> result;
      for (const auto& sum : matrices.Sums()) {
        result.push_back(matrices.FloatResult()[sum.at]);
      }
      if (early == 0) expected = result;
      EXPECT_EQ(result, expected)
          << testing::PrintToString(shape) << ", early " << early;
      // The simulated device checks every load.
      if (early == inner) continue;
      product.early = inner;
      EXPECT_NE(DapdCudaSkinnyProduct(&product, nullptr), 0);
      EXPECT_THAT(fake::TakeReport(),
                  testing::HasSubstr("before it waited for the launch before"));
    }
  }
}

TEST(SkinnyProductTrafficTest, WeightsAreReadOnce) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kInner = 4608;
  constexpr int64_t kCols = 64;
  Matrices matrices(kRows, kInner, kCols);
  const CudaProduct product = matrices.Product(0, kRows, true);
  fake::TakeTraffic();
  ASSERT_KERNEL_RUNS(DapdCudaSkinnyProduct(&product, nullptr));
  const fake::Traffic traffic = fake::TakeTraffic();
  // x is read once for each of four tiles of columns.
  EXPECT_EQ(traffic.bytes_read, (kCols + 4 * kRows) * kInner * 2);
  EXPECT_EQ(traffic.bytes_written, kRows * kCols * sizeof(float));
}

// Columns of Qwen3-4B: o and down 2,560, q, k and v 6,144, gate and up 19,456.
// Columns of Qwen3-8B: o and down 4,096.
TEST(SkinnyPlanTest, ABlockIsAsWideAsTheDeviceNeedsForOneRound) {
  struct Case {
    int64_t cols;
    SkinnyPlan a100, h100, b200;  // 108, 132 and 148 multiprocessors
  };
  for (const Case& each : {Case{512, {1, 16}, {1, 16}, {1, 16}},
                           Case{2560, {2, 8}, {2, 8}, {2, 8}},
                           Case{4096, {4, 4}, {2, 8}, {2, 8}},
                           Case{6144, {4, 4}, {4, 4}, {4, 4}},
                           Case{8192, {8, 2}, {4, 4}, {4, 4}},
                           Case{18432, {8, 1}, {8, 1}, {8, 2}},
                           Case{19456, {8, 1}, {8, 1}, {8, 1}}}) {
    for (const auto& [multiprocessors, expected] :
         {std::pair{108, each.a100},
          std::pair{132, each.h100},
          std::pair{148, each.b200}}) {
      const SkinnyPlan plan = PlanSkinnyProduct(each.cols, multiprocessors);
      EXPECT_EQ(plan, expected)
          << each.cols << " columns, " << multiprocessors << " multiprocessors";
      const int64_t blocks = (each.cols + plan.tiles * kSkinnyCols - 1) /
                             (plan.tiles * kSkinnyCols);
      // A multiprocessor has room for 16 warps.
      const int64_t at_a_time =
          multiprocessors * (16 / (plan.tiles * plan.slices));
      EXPECT_LE(blocks, at_a_time);
    }
  }
}

// The simulated device has 108 multiprocessors, or 132: 4,096 columns have four
// slices, or eight. Both are the product, with other bits.
TEST(SkinnyPlanTest, TheKernelFollowsTheDevicesMultiprocessors) {
  Matrices matrices(2, 1032, 4096);
  const CudaProduct product = matrices.Product(0, 2, true);
  for (const auto& [multiprocessors, blocks] :
       {std::pair{108, 64}, std::pair{132, 128}}) {
    fake::SetTraits({.multiprocessors = multiprocessors});
    fake::TakeLaunches();
    ASSERT_KERNEL_RUNS(DapdCudaSkinnyProduct(&product, nullptr));
    EXPECT_EQ(fake::TakeLaunches().blocks, blocks);
    const std::vector<float> result = matrices.FloatResult();
    for (const auto& [at, sum, absolute] : matrices.Sums()) {
      ASSERT_LE(std::abs(result[at] - sum), absolute * 100 * 0x1.0p-24);
    }
  }
  fake::SetTraits({});
}

TEST(SkinnyProductTakesTest, FewRowsInBFloat16AsTheyAre) {
  const CudaProduct taken{.rows = kMaxSkinnyRows,
                          .inner = 264,
                          .cols = 7,
                          .number = CudaNumber::kBFloat16};
  EXPECT_TRUE(IsSkinny(taken));
  for (const auto change : std::vector<void (*)(CudaProduct*)>{
           [](CudaProduct* p) { p->rows = kMaxSkinnyRows + 1; },
           [](CudaProduct* p) { p->inner = 260; },
           [](CudaProduct* p) { p->x_stride = 268; },
           [](CudaProduct* p) { p->w_stride = 268; },
           [](CudaProduct* p) { p->number = CudaNumber::kFloat32; },
           [](CudaProduct* p) { p->w_is_kn = true; },
           [](CudaProduct* p) { p->alpha = 2.0F; },
           [](CudaProduct* p) { p->beta = 1.0F; }}) {
    CudaProduct product = taken;
    change(&product);
    EXPECT_FALSE(IsSkinny(product));
  }
}

}  // namespace
}  // namespace dapd
