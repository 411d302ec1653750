#include "common/kernels/decode_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/parallel_for.h"
#include "tests/fakes/played_tiles.h"

namespace dapd {
namespace {

std::vector<CpuLevel> Levels() {
  std::vector<CpuLevel> levels;
  for (int i = 0; i <= static_cast<int>(MachineCpuLevel()); ++i) {
    levels.push_back(static_cast<CpuLevel>(i));
  }
  return levels;
}

struct NamedKernels {
  std::string name;
  DecodeKernels kernels;
};

#if defined(__x86_64__)
// Those of a processor with AMX, its instructions played.
NamedKernels PlayedAmx() {
  NamedKernels played = {"played amx", DecodeKernelsOf(CpuLevel::kAvx512Bf16)};
  played_tiles::AddTileGemmKernels(&played.kernels);
  return played;
}
#endif

// Of every level that this machine can compute with.
std::vector<NamedKernels> AllKernels() {
  std::vector<NamedKernels> all;
  for (const CpuLevel level : Levels()) {
    all.push_back({CpuLevelName(level), DecodeKernelsOf(level)});
  }
#if defined(__x86_64__)
  if (MachineCpuLevel() >= CpuLevel::kAvx512Bf16) all.push_back(PlayedAmx());
#endif
  return all;
}

float Rounded(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16) & 1U)) &
                              0xFFFF0000U);
}

uint16_t Upper(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(Rounded(value)) >> 16);
}

std::vector<float> Random(size_t count, unsigned seed, bool round = false) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = round ? Rounded(normal(engine)) : normal(engine);
  }
  return values;
}

// The layout, number by number: of rows [count, depth], floats and halves.
void LayOut(const std::vector<float>& rows,
            int64_t depth,
            std::vector<float>* panel,
            std::vector<uint16_t>* pairs) {
  panel->assign(static_cast<size_t>(kPanelWidth * depth), 0.0F);
  pairs->assign(static_cast<size_t>(kPanelWidth * ((depth + 1) / 2 * 2)), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t n = static_cast<int64_t>(i) / depth;
    const int64_t k = static_cast<int64_t>(i) % depth;
    (*panel)[static_cast<size_t>(k * kPanelWidth + n)] = rows[i];
    (*pairs)[static_cast<size_t>((k / 2 * kPanelWidth + n) * 2 + k % 2)] =
        Upper(rows[i]);
  }
}

TEST(DecodePanelsTest, AreTheSameBitsAtEveryLevel) {
  for (const int64_t count : {1, 7, 16, 31, 32}) {
    for (const int64_t depth : {1, 2, 15, 33, 64, 131}) {
      std::vector<float> rows =
          Random(static_cast<size_t>(count * depth), 5, true);
      rows[0] = std::bit_cast<float>(0x00010000U);  // a subnormal number
      std::vector<BFloat16> halves;
      for (const float value : rows) halves.push_back({Upper(value)});
      std::vector<float> panel;
      std::vector<uint16_t> pairs;
      LayOut(rows, depth, &panel, &pairs);
      for (const CpuLevel level : Levels()) {
        SCOPED_TRACE(testing::Message() << CpuLevelName(level) << " " << count
                                        << " rows of " << depth);
        const DecodeKernels& kernels = DecodeKernelsOf(level);
        // Memory that is used again is not zero.
        std::vector<float> floats(panel.size(), 7.0F);
        kernels.pack_float32_panel(rows.data(), count, depth, floats.data());
        EXPECT_EQ(floats, panel);
        std::vector<uint16_t> packed(pairs.size(), 7);
        kernels.pack_bfloat16_panel(halves.data(), count, depth, packed.data());
        EXPECT_EQ(packed, pairs);
        packed.assign(pairs.size(), 7);
        kernels.pack_upper_halves_panel(
            rows.data(), count, depth, packed.data());
        EXPECT_EQ(packed, pairs);
      }
    }
  }
}

// A product by one of the three kinds of panels; x and w hold bfloat16 values.
enum class Kind { kFloat32, kBFloat16, kBFloat16Dot };

std::vector<float> Multiply(const DecodeKernels& kernels,
                            Kind kind,
                            const std::vector<float>& w,
                            const std::vector<float>& x,
                            int64_t rows,
                            int64_t depth) {
  std::vector<float> y(static_cast<size_t>(rows * kPanelWidth), -1.0F);
  std::vector<float> packed(static_cast<size_t>(rows * depth));
  std::vector<uint16_t> pairs(packed.size());
  std::vector<float> panel;
  std::vector<uint16_t> paired;
  LayOut(w, depth, &panel, &paired);
  kernels.pack_float32(x.data(), depth, rows, depth, depth, packed.data());
  kernels.pack_bfloat16(x.data(), depth, rows, depth, depth, pairs.data());
  if (kind == Kind::kFloat32) {
    kernels.multiply_float32(
        panel.data(), packed.data(), rows, depth, y.data(), kPanelWidth);
  } else if (kind == Kind::kBFloat16) {
    kernels.multiply_bfloat16(
        paired.data(), packed.data(), rows, depth, y.data(), kPanelWidth);
  } else {
    kernels.multiply_bfloat16_dot(
        paired.data(), pairs.data(), rows, depth, y.data(), kPanelWidth);
  }
  return y;
}

class DecodeGemmTest : public testing::TestWithParam<Kind> {};

TEST_P(DecodeGemmTest, AgreesWithThePlainLoopAtEveryLevel) {
  constexpr int64_t kRows = 29;
  constexpr int64_t kDepth = 1090;  // more than two blocks, and not whole
  const std::vector<float> w = Random(kPanelWidth * kDepth, 1, true);
  const std::vector<float> x = Random(kRows * kDepth, 2, true);
  for (const auto& [name, kernels] : AllKernels()) {
    if (GetParam() == Kind::kBFloat16Dot &&
        kernels.multiply_bfloat16_dot == nullptr) {
      continue;
    }
    const std::vector<float> y =
        Multiply(kernels, GetParam(), w, x, kRows, kDepth);
    double worst = 0.0;
    for (size_t i = 0; i < y.size(); ++i) {
      const float* row = x.data() + i / kPanelWidth * kDepth;
      const float* out = w.data() + i % kPanelWidth * kDepth;
      double sum = 0.0;
      for (int64_t k = 0; k < kDepth; ++k) {
        sum += static_cast<double>(row[k]) * static_cast<double>(out[k]);
      }
      worst = std::max(worst, std::abs(sum - static_cast<double>(y[i])));
    }
    RecordProperty(name, std::to_string(worst));
    EXPECT_LT(worst, 2e-4) << name;
  }
}

TEST_P(DecodeGemmTest, ARowsBitsDoNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kDepth = 600;
  const std::vector<float> w = Random(kPanelWidth * kDepth, 3, true);
  const std::vector<float> x = Random(kRows * kDepth, 4, true);
  for (const auto& [name, kernels] : AllKernels()) {
    if (GetParam() == Kind::kBFloat16Dot &&
        kernels.multiply_bfloat16_dot == nullptr) {
      continue;
    }
    const std::vector<float> all =
        Multiply(kernels, GetParam(), w, x, kRows, kDepth);
    for (int64_t rows = 1; rows <= 14; ++rows) {
      const std::vector<float> some(x.end() - rows * kDepth, x.end());
      const std::vector<float> y =
          Multiply(kernels, GetParam(), w, some, rows, kDepth);
      EXPECT_EQ(y,
                std::vector<float>(all.end() - rows * kPanelWidth, all.end()))
          << name << " " << rows;
    }
  }
}

#if defined(__x86_64__)
// Rows and depths that fill tiles, and that do not; a depth whose last pair is
// half a pair; memory between the results of rows.
TEST(DecodeTilesTest, TheInstructionsComputeWhatIntelDefines) {
  if (MachineCpuLevel() < CpuLevel::kAmx) {
    GTEST_SKIP() << "this processor has no AMX";
  }
  const NamedKernels played = PlayedAmx();
  constexpr int64_t kStride = kPanelWidth + 3;
  for (const int64_t rows : {1, 15, 16, 17, 32, 33, 70}) {
    for (const int64_t depth : {1, 2, 31, 32, 33, 64, 100, 1090}) {
      const int64_t padded = (depth + 1) / 2 * 2;
      const std::vector<float> x = Random(static_cast<size_t>(rows * depth), 7);
      std::vector<float> panel;
      std::vector<uint16_t> pairs;
      LayOut(Random(static_cast<size_t>(kPanelWidth * depth), 8, true),
             depth,
             &panel,
             &pairs);
      const auto product = [&](const DecodeKernels& kernels) {
        std::vector<uint16_t> packed(static_cast<size_t>(rows * padded), 7);
        kernels.pack_bfloat16(
            x.data(), depth, rows, depth, padded, packed.data());
        std::vector<float> y(static_cast<size_t>(rows * kStride), -1.0F);
        kernels.multiply_bfloat16_dot(
            pairs.data(), packed.data(), rows, padded, y.data(), kStride);
        return y;
      };
      const std::vector<float> y = product(DecodeKernelsOf(CpuLevel::kAmx));
      EXPECT_EQ(y, product(played.kernels)) << rows << " x " << depth;
      for (size_t i = kPanelWidth; i < y.size(); i += kStride) {
        EXPECT_EQ(y[i], -1.0F) << "what lies between the rows stays";
      }
    }
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Kinds,
                         DecodeGemmTest,
                         testing::Values(Kind::kFloat32,
                                         Kind::kBFloat16,
                                         Kind::kBFloat16Dot));

TEST(DecodeRowsTest, AgreeWithPlainLoopsAtEveryLevel) {
  // No multiple of any vector, and less than one.
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
        // What is past the row's numbers is another's.
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

// CUDA's NaN, of which rounding alone would make -0.
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

TEST(ParallelForTest, EveryIterationRunsOnce) {
  for (const int threads : {1, 2, 5}) {
    std::vector<int> runs(1000, 0);
    ParallelFor(
        threads, 1000, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    EXPECT_EQ(runs, std::vector<int>(1000, 1));
  }
}

}  // namespace
}  // namespace dapd
