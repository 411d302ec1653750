#include <algorithm>
#include <bit>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/decode_kernels.h"
#include "tests/common/kernels/decode_kernel_inputs.h"
#include "tests/fakes/simulated_tiles.h"

namespace dapd {
namespace {

struct NamedKernels {
  std::string name;
  DecodeKernels kernels;
};

#if defined(__x86_64__)
// Returns the kernels of a processor with AMX; its instructions are simulated.
NamedKernels SimulatedAmx() {
  NamedKernels simulated = {"simulated amx",
                            DecodeKernelsOf(CpuLevel::kAvx512Bf16)};
  simulated_tiles::AddTileGemmKernels(&simulated.kernels);
  return simulated;
}
#endif

// Returns the kernels of every level that this machine can run.
std::vector<NamedKernels> AllKernels() {
  std::vector<NamedKernels> all;
  for (const CpuLevel level : Levels()) {
    all.push_back({CpuLevelName(level), DecodeKernelsOf(level)});
  }
#if defined(__x86_64__)
  if (MachineCpuLevel() >= CpuLevel::kAvx512Bf16) all.push_back(SimulatedAmx());
#endif
  return all;
}

uint16_t Upper(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(Rounded(value)) >> 16);
}

// Lays rows [count, depth] out number by number, as floats and as halves.
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
        // Memory that is reused is not zero.
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

// The kinds of panels of a product x w; x and w hold bfloat16 values.
enum class Kind { kFloat32, kBFloat16, kBFloat16Dot };

void PrintTo(Kind kind, std::ostream* out) {
  switch (kind) {
    case Kind::kFloat32:
      *out << "float32";
      break;
    case Kind::kBFloat16:
      *out << "bfloat16";
      break;
    case Kind::kBFloat16Dot:
      *out << "bfloat16_pairs";
      break;
  }
}

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
  constexpr int64_t kDepth = 1090;  // two blocks and a part of a third
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
// Some rows and depths fill tiles and some do not; one depth ends with half a
// pair; there is memory between the rows of the result.
TEST(DecodeTilesTest, TheInstructionsComputeWhatIntelDefines) {
  if (MachineCpuLevel() < CpuLevel::kAmx) {
    GTEST_SKIP() << "this processor has no AMX";
  }
  const NamedKernels simulated = SimulatedAmx();
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
      EXPECT_EQ(y, product(simulated.kernels)) << rows << " x " << depth;
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
                                         Kind::kBFloat16Dot),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace dapd
