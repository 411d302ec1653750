#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/decode_kernels.h"
#include "tests/common/kernels/decode_kernel_inputs.h"

namespace dapd {
namespace {

TEST(DecodeRowsTest, AgreeWithPlainLoopsAtEveryLevel) {
  // The sizes fill no vector exactly, and 6 is less than one vector.
  for (const int64_t size : {6, 90}) {
    const auto count = static_cast<size_t>(size);
    const std::vector<float> x = Random(count, 5);
    const std::vector<float> w = Random(count, 6);
    for (const CpuLevel level : Levels()) {
      const DecodeKernels& kernels = DecodeKernelsOf(level);
      std::vector<float> out(count);
      double squares = 0.0;
      double largest = -1e30;
      for (const float value : x) {
        squares += static_cast<double>(value) * static_cast<double>(value);
        largest = std::max(largest, static_cast<double>(value));
      }
      const double scale =
          1.0 / std::sqrt(squares / static_cast<double>(size) + 1e-6);

      kernels.rms_norm(x.data(), w.data(), size, 1e-6F, false, out.data());
      for (size_t i = 0; i < count; ++i) {
        EXPECT_NEAR(out[i], w[i] * x[i] * scale, 1e-5);
      }
      kernels.rms_norm(x.data(), w.data(), size, 1e-6F, true, out.data());
      for (size_t i = 0; i < count; ++i) {
        EXPECT_NEAR(out[i], w[i] * x[i] * scale, 0.02);
        EXPECT_EQ(out[i], Rounded(out[i]));
      }

      kernels.gated(x.data(), w.data(), size, false, out.data());
      for (size_t i = 0; i < count; ++i) {
        EXPECT_NEAR(out[i], x[i] / (1 + std::exp(-x[i])) * w[i], 1e-6);
      }

      out = x;
      kernels.rotate(out.data(), w.data(), w.data(), size, false);
      for (size_t i = 0; i < count / 2; ++i) {
        const size_t j = i + count / 2;
        EXPECT_NEAR(out[i], x[i] * w[i] - x[j] * w[i], 1e-6);
        EXPECT_NEAR(out[j], x[j] * w[i] + x[i] * w[i], 1e-6);
      }

      kernels.combine({.size = size,
                       .y = x.data(),
                       .bias = w.data(),
                       .update = x.data(),
                       .scale = 0.5F,
                       .residual = w.data(),
                       .out = out.data()});
      for (size_t i = 0; i < count; ++i) {
        EXPECT_NEAR(out[i], 1.5F * x[i] + 2 * w[i], 1e-5);
      }

      std::vector<float> scores = x;
      scores.resize(count + 2, 7.0F);
      kernels.softmax(scores.data(), size, size + 2, 0.3F);
      double total = 0.0;
      double sum_exp = 0.0;
      for (size_t i = 0; i < count; ++i) {
        total += std::exp(0.3 * (static_cast<double>(x[i]) - largest));
        sum_exp += std::exp(static_cast<double>(x[i]) - largest);
      }
      for (size_t i = 0; i < count; ++i) {
        EXPECT_NEAR(
            scores[i],
            std::exp(0.3 * (static_cast<double>(x[i]) - largest)) / total,
            1e-6);
      }
      EXPECT_EQ(scores[count], 0.0F);
      EXPECT_EQ(scores[count + 1], 0.0F);

      std::vector<float> maxima(2);
      EXPECT_TRUE(kernels.chunk_maxima(x.data(), size, maxima.data()));
      EXPECT_EQ(*std::max_element(
                    maxima.begin(),
                    maxima.begin() + (size + kMaximaChunk - 1) / kMaximaChunk),
                static_cast<float>(largest));
      EXPECT_NEAR(kernels.sum_exp(x.data(), size, static_cast<float>(largest)) /
                      sum_exp,
                  1.0,
                  1e-6);
    }
  }
}

TEST(DecodeRowsTest, RowsAreCombinedWhereverTheyLie) {
  constexpr int64_t kRows = 3, kSize = 37;
  const std::vector<float> y = Random(kRows * 40, 1);
  const std::vector<float> bias = Random(kSize, 2);
  const std::vector<float> update = Random(kRows * 45, 3);
  const std::vector<float> before = Random(kRows * 50, 4);
  for (const CpuLevel level : Levels()) {
    const DecodeKernels& kernels = DecodeKernelsOf(level);
    for (const bool round : {false, true}) {
      CombinedRows rows = {.rows = kRows,
                           .size = kSize,
                           .y = y.data(),
                           .y_stride = 40,
                           .bias = bias.data(),
                           .update = update.data(),
                           .update_stride = 45,
                           .scale = 0.5F,
                           .round = round};
      std::vector<float> out = before;
      rows.residual = rows.out = out.data();
      rows.out_stride = 50;
      kernels.combine(rows);
      for (int64_t row = 0; row < kRows; ++row) {
        std::vector<float> alone(before.begin() + row * 50,
                                 before.begin() + (row + 1) * 50);
        CombinedRows one = rows;
        one.rows = 1;
        one.y += row * 40;
        one.update += row * 45;
        one.residual = one.out = alone.data();
        kernels.combine(one);
        EXPECT_EQ(alone,
                  std::vector<float>(out.begin() + row * 50,
                                     out.begin() + (row + 1) * 50))
            << CpuLevelName(level) << " " << row;
        // The kernel must not change the number behind the row.
        EXPECT_EQ(alone[kSize], before[static_cast<size_t>(row * 50 + kSize)]);
      }
    }
  }
}

TEST(DecodeRowsTest, RowsToWhichNothingIsAddedAreCopied) {
  constexpr size_t kRows = 3, kSize = 37, kFrom = 40, kTo = 50;
  const std::vector<float> y = Random(kRows * kFrom, 1);
  for (const CpuLevel level : Levels()) {
    std::vector<float> out(kRows * kTo, -1.0F);
    DecodeKernelsOf(level).combine({.rows = kRows,
                                    .size = kSize,
                                    .y = y.data(),
                                    .y_stride = kFrom,
                                    .out = out.data(),
                                    .out_stride = kTo});
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t row = i / kTo, column = i % kTo;
      EXPECT_EQ(out[i], column < kSize ? y[row * kFrom + column] : -1.0F);
    }
  }
}

TEST(DecodeRowsTest, ALogitThatIsNotFiniteIsSeen) {
  for (const CpuLevel level : Levels()) {
    for (const float value : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> logits(200, 1.0F);
      std::vector<float> maxima(4);
      logits[197] = value;
      EXPECT_FALSE(DecodeKernelsOf(level).chunk_maxima(
          logits.data(), 200, maxima.data()));
    }
  }
}

// Rounding alone would turn CUDA's NaN into -0.
TEST(DecodeRowsTest, ANanStaysOneWhenItIsRounded) {
  constexpr int64_t kSize = 37;  // whole vectors and a part of one
  const std::vector<float> x(kSize, std::bit_cast<float>(0x7FFFFFFFU));
  for (const CpuLevel level : Levels()) {
    const DecodeKernels& kernels = DecodeKernelsOf(level);
    std::vector<float> out(kSize);
    kernels.combine(
        {.size = kSize, .y = x.data(), .round = true, .out = out.data()});
    std::vector<uint16_t> pairs(kSize + 1);
    kernels.pack_bfloat16(
        x.data(), kSize, /*rows=*/1, kSize, kSize + 1, pairs.data());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(std::isnan(out[i])) << CpuLevelName(level) << " " << i;
      EXPECT_TRUE(std::isnan(ToFloat(BFloat16{pairs[i]})))
          << CpuLevelName(level) << " " << i;
    }
  }
}

}  // namespace
}  // namespace dapd
