#include "common/kernels/packed_gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/kernels/bfloat16.h"
#include "common/kernels/cpu_features.h"
#include "common/kernels/packed_gemm_cpu_levels.h"
#include "tests/fakes/simulated_tiles.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

struct Shape {
  int64_t m, n, k;
};

// Says which operands are transposed, their formats, and whether C is added to.
struct GemmKind {
  bool bfloat16 = false;
  bool b_transposed = false;
  bool a_transposed = false;
  bool adds = false;
  bool a_bfloat16 = false;
  bool c_bfloat16 = false;
};

std::string Name(const GemmKind& kind) {
  return std::string(kind.bfloat16 ? " bfloat16" : " float32") +
         (kind.a_transposed ? ", A transposed" : "") +
         (kind.b_transposed ? ", B transposed" : "") +
         (kind.adds ? ", added" : "") +
         (kind.a_bfloat16 ? ", A bfloat16" : "") +
         (kind.c_bfloat16 ? ", C bfloat16" : "");
}

std::vector<GemmKind> AllKinds() {
  std::vector<GemmKind> kinds;
  for (int bits = 0; bits < 64; ++bits) {
    kinds.push_back({(bits & 1) != 0,
                     (bits & 2) != 0,
                     (bits & 4) != 0,
                     (bits & 8) != 0,
                     (bits & 16) != 0,
                     (bits & 32) != 0});
  }
  return kinds;
}

constexpr float kBefore = -77.0F;  // C's values before

// Holds operands whose rows are further apart than they are long.
struct Matrices {
  Shape shape;
  GemmKind kind;
  int64_t a_lines = shape.m;  // of a transposed A; fewer rows may be multiplied
  std::vector<float> a, b, c;
  std::vector<BFloat16> a_halves, b_halves, c_halves;

  Matrices(Shape s, GemmKind k) : shape(s), kind(k) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    a.resize(kind.a_transposed ? s.k * (s.m + 3) : s.m * (s.k + 3));
    b.resize(kind.b_transposed ? s.n * (s.k + 1) : s.k * (s.n + 1));
    c.assign(s.m * (s.n + 2), kBefore);
    // bfloat16 holds these values exactly, so both formats have the same
    // products.
    for (float& x : a) x = RoundedTo<BFloat16>(uniform(random));
    for (float& x : b) x = RoundedTo<BFloat16>(uniform(random));
    for (const float x : a) a_halves.push_back(FromFloat<BFloat16>(x));
    for (const float x : b) b_halves.push_back(FromFloat<BFloat16>(x));
    for (const float x : c) c_halves.push_back(FromFloat<BFloat16>(x));
  }

  // Multiplies A by `size`, a power of two.
  void Shrink(float size) {
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] *= size;
      a_halves[i] = FromFloat<BFloat16>(a[i]);
    }
  }

  GemmOperands Operands() {
    return {
        .m = shape.m,
        .n = shape.n,
        .k = shape.k,
        .a = kind.a_bfloat16 ? static_cast<const void*>(a_halves.data())
                             : a.data(),
        .a_stride = (kind.a_transposed ? a_lines : shape.k) + 3,
        .a_is_bfloat16 = kind.a_bfloat16,
        .a_is_transposed = kind.a_transposed,
        .b = kind.bfloat16 ? static_cast<const void*>(b_halves.data())
                           : b.data(),
        .b_stride = (kind.b_transposed ? shape.k : shape.n) + 1,
        .b_is_bfloat16 = kind.bfloat16,
        .b_is_transposed = kind.b_transposed,
        .c = kind.c_bfloat16 ? static_cast<void*>(c_halves.data()) : c.data(),
        .c_stride = shape.n + 2,
        .c_is_bfloat16 = kind.c_bfloat16,
        .adds = kind.adds};
  }

  void Multiply(int num_threads) {
    PackedGemm(Operands(), num_threads);
    Widen();
  }

  // Multiplies in two parts of rows and two parts of columns.
  void MultiplyBy(const PackedGemmKernel& kernel) {
    const GemmOperands operands = Operands();
    const int64_t rows = std::min(shape.m, kernel.tile_rows);
    const int64_t columns = std::min(shape.n, kernel.tile_columns);
    kernel.run(operands, 0, rows, 0, columns);
    kernel.run(operands, 0, rows, columns, shape.n);
    kernel.run(operands, rows, shape.m, 0, columns);
    kernel.run(operands, rows, shape.m, columns, shape.n);
    Widen();
  }

  void Widen() {
    for (size_t i = 0; kind.c_bfloat16 && i < c.size(); ++i) {
      c[i] = ToFloat(c_halves[i]);
    }
  }

  // Returns the largest error of an entry. Its unit is sqrt(k) float roundings,
  // plus the roundings of C's value before. A bfloat16 C may in addition be off
  // by half of its last place, at most 2^-8 of the entry; it holds the value
  // before exactly.
  double WorstError() const {
    double worst = 0.0;
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        double sum = kind.adds ? kBefore : 0.0;
        for (int64_t k = 0; k < shape.k; ++k) {
          sum += static_cast<double>(kind.a_transposed
                                         ? a[k * (a_lines + 3) + i]
                                         : a[i * (shape.k + 3) + k]) *
                 (kind.b_transposed ? b[j * (shape.k + 1) + k]
                                    : b[k * (shape.n + 1) + j]);
        }
        const double rounding = kind.c_bfloat16 ? std::abs(sum) / 256 : 0.0;
        worst =
            Worse(worst, std::abs(sum - c[i * (shape.n + 2) + j]) - rounding);
      }
    }
    const double roundings =
        std::sqrt(static_cast<double>(shape.k)) + (kind.adds ? -kBefore : 0.0F);
    return worst / (roundings * 1.2e-7);
  }
};

TEST(PackedGemmTest, AgreesWithTheDefinitionInDoublePrecision) {
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1},
                                               {3, 5, 2},
                                               {14, 32, 16},
                                               {15, 33, 17},
                                               {29, 130, 71},
                                               {7, 40, 600},
                                               {16, 50, 5000}}) {
    for (const GemmKind& kind : AllKinds()) {
      Matrices matrices(shape, kind);
      matrices.Multiply(2);
      const double error = matrices.WorstError();
      const std::string name =
          absl::StrCat(shape.m, " x ", shape.n, " x ", shape.k, Name(kind));
      std::cout << name << ": " << error << "\n";
      EXPECT_LT(error, 20.0) << name;
      for (int64_t i = 0; i < shape.m; ++i) {
        EXPECT_EQ(matrices.c[i * (shape.n + 2) + shape.n], kBefore)
            << name << ": what lies between the rows stays";
      }
    }
  }
}

struct NamedKernel {
  std::string name;
  PackedGemmKernel kernel;
};

// Returns the kernels of every level that this processor has. Without AMX,
// simulated tiles test the code around AMX's instructions.
std::vector<NamedKernel> KernelsOfThisMachine() {
  std::vector<NamedKernel> kernels = {
      {"baseline", baseline::MakePackedGemmKernel()}};
#if defined(__x86_64__)
  const CpuLevel level = MachineCpuLevel();
  if (level >= CpuLevel::kAvx2) {
    kernels.push_back({"avx2", avx2::MakePackedGemmKernel()});
  }
  if (level >= CpuLevel::kAvx512) {
    kernels.push_back({"avx512", avx512::MakePackedGemmKernel()});
  }
  if (level >= CpuLevel::kAvx512Bf16) {
    kernels.push_back({"avx512_bf16", avx512_bf16::MakePackedGemmKernel()});
    kernels.push_back(
        {"simulated tiles", simulated_tiles::MakePackedGemmKernel()});
  }
  if (level >= CpuLevel::kAmx) {
    kernels.push_back({"amx", amx::MakePackedGemmKernel()});
  }
#endif
  return kernels;
}

TEST(PackedGemmTest, EveryLevelAgreesWithTheDefinitionInDoublePrecision) {
  for (const auto& [name, kernel] : KernelsOfThisMachine()) {
    for (const Shape& shape : std::vector<Shape>{{1, 1, 1},
                                                 {3, 5, 2},
                                                 {32, 32, 32},
                                                 {33, 65, 31},
                                                 {70, 40, 97},
                                                 {33, 34, 4200}}) {
      for (const GemmKind& kind : AllKinds()) {
        // Sums of several blocks need a float32 C.
        if (kind.c_bfloat16 && shape.k > kGemmWholeDepth) continue;
        Matrices matrices(shape, kind);
        matrices.MultiplyBy(kernel);
        EXPECT_LT(matrices.WorstError(), 20.0)
            << name << " " << shape.m << " x " << shape.n << " x " << shape.k
            << Name(kind);
        EXPECT_EQ(matrices.c[shape.n], kBefore) << name << Name(kind);
      }
    }
  }
}

// Rounding alone would turn CUDA's NaN into -0.
TEST(PackedGemmTest, ANanStaysOneInWholeAndInCutTiles) {
  constexpr int64_t kColumns = 65;
  for (const auto& [name, kernel] : KernelsOfThisMachine()) {
    for (const GemmKind& kind : AllKinds()) {
      if (kind.a_bfloat16) continue;
      Matrices matrices({33, kColumns, 40}, kind);
      matrices.a[0] = std::bit_cast<float>(0x7FFFFFFFU);
      matrices.MultiplyBy(kernel);
      const float* second_row = matrices.c.data() + kColumns + 2;
      for (int64_t j = 0; j < kColumns; ++j) {
        EXPECT_TRUE(std::isnan(matrices.c[j])) << name << Name(kind) << j;
        EXPECT_FALSE(std::isnan(second_row[j])) << name << Name(kind) << j;
      }
    }
  }
}

// Returns the [m, n] product of float32 matrices in one part; A's lines are
// `a_stride` apart.
std::vector<float> Product(const PackedGemmKernel& kernel,
                           const Shape& shape,
                           const std::vector<float>& a,
                           int64_t a_stride,
                           bool a_transposed,
                           const std::vector<float>& b,
                           int64_t b_stride) {
  std::vector<float> c(static_cast<size_t>(shape.m * shape.n));
  const GemmOperands operands = {.m = shape.m,
                                 .n = shape.n,
                                 .k = shape.k,
                                 .a = a.data(),
                                 .a_stride = a_stride,
                                 .a_is_transposed = a_transposed,
                                 .b = b.data(),
                                 .b_stride = b_stride,
                                 .c = c.data(),
                                 .c_stride = shape.n};
  kernel.run(operands, 0, shape.m, 0, shape.n);
  return c;
}

std::vector<float> Random(int64_t size) {
  std::mt19937 random(4);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> numbers(static_cast<size_t>(size));
  for (float& x : numbers) x = uniform(random);
  return numbers;
}

// Lines of A that are a multiple of 4 KiB apart are packed, other lines are
// read in place. The last rows, which fill no tile, are packed in both cases.
TEST(PackedGemmTest, LinesOfAReadInPlaceGiveTheBitsOfPackedOnes) {
  constexpr int64_t kDepth = 700;
  for (const auto& [name, kernel] : KernelsOfThisMachine()) {
    for (const int64_t n : {12, 40, 70}) {
      const Shape shape{33, n, kDepth};
      const std::vector<float> far = Random(shape.m * 1024);
      std::vector<float> near;
      for (int64_t row = 0; row < shape.m; ++row) {
        const auto line = far.begin() + row * 1024;
        near.insert(near.end(), line, line + kDepth);
      }
      const std::vector<float> b = Random(kDepth * n);
      EXPECT_EQ(Product(kernel, shape, near, kDepth, false, b, n),
                Product(kernel, shape, far, 1024, false, b, n))
          << name << ", " << n << " columns";
    }
  }
}

// Few rows are multiplied as C^T = B^T A^T; 60 rows are not.
TEST(PackedGemmTest, FewRowsGiveTheBitsOfMany) {
  constexpr int64_t kColumns = 75;
  for (const GemmKind& kind :
       std::vector<GemmKind>{{.b_transposed = true},
                             {.b_transposed = true, .adds = true},
                             {.a_transposed = true},
                             {.a_transposed = true, .adds = true}}) {
    Matrices many({60, kColumns, 100}, kind);
    for (const auto& [name, kernel] : KernelsOfThisMachine()) {
      std::ranges::fill(many.c, kBefore);
      kernel.run(many.Operands(), 0, 60, 0, kColumns);
      for (const int64_t rows : {1, 17, 40}) {
        Matrices few = many;
        std::ranges::fill(few.c, kBefore);
        kernel.run(few.Operands(), 0, rows, 0, kColumns);
        const auto end = few.c.begin() + rows * (kColumns + 2);
        EXPECT_TRUE(std::equal(few.c.begin(), end, many.c.begin()))
            << name << ", " << rows << " rows" << Name(kind);
        EXPECT_EQ(std::count(end, few.c.end(), kBefore), few.c.end() - end)
            << name << ", " << rows << " rows" << Name(kind);
      }
    }
  }
}

// Rows of a transposed A are read in place for few columns, and packed for many
// columns.
TEST(PackedGemmTest, RowsOfATransposedAReadInPlaceGiveTheBitsOfPackedOnes) {
  constexpr int64_t kDepth = 700;
  constexpr int64_t kColumns = 100;
  const std::vector<float> a = Random(kDepth * 35);
  const std::vector<float> b = Random(kDepth * kColumns);
  for (const auto& [name, kernel] : KernelsOfThisMachine()) {
    const std::vector<float> many =
        Product(kernel, {33, kColumns, kDepth}, a, 35, true, b, kColumns);
    for (const int64_t n : {3, 8}) {
      const std::vector<float> few =
          Product(kernel, {33, n, kDepth}, a, 35, true, b, kColumns);
      for (int64_t row = 0; row < 33; ++row) {
        EXPECT_TRUE(std::equal(few.begin() + row * n,
                               few.begin() + (row + 1) * n,
                               many.begin() + row * kColumns))
            << name << ", " << n << " columns, row " << row;
      }
    }
  }
}

#if defined(__x86_64__)
TEST(PackedGemmTest, SimulatedTilesHaveTheBitsOfTheInstructions) {
  if (MachineCpuLevel() < CpuLevel::kAmx) {
    GTEST_SKIP() << "this processor has no AMX";
  }
  for (const Shape& shape : std::vector<Shape>{
           {1, 1, 1}, {33, 65, 31}, {70, 40, 97}, {33, 34, 4200}}) {
    // A's values are of ordinary size, or near the least normal number.
    for (const float size : {1.0F, 0x1p-126F}) {
      for (const GemmKind& kind : AllKinds()) {
        if (!kind.bfloat16 || kind.a_transposed) continue;
        if (kind.c_bfloat16 && shape.k > kGemmWholeDepth) continue;
        Matrices found(shape, kind);
        found.Shrink(size);
        Matrices simulated = found;
        found.MultiplyBy(amx::MakePackedGemmKernel());
        simulated.MultiplyBy(simulated_tiles::MakePackedGemmKernel());
        EXPECT_EQ(found.c, simulated.c) << shape.m << " x " << shape.n << " x "
                                        << shape.k << Name(kind) << " " << size;
      }
    }
  }
}
#endif

TEST(PackedGemmTest, NeitherThreadsNorOtherRowsChangeABit) {
  for (const GemmKind& kind : AllKinds()) {
    for (const Shape& shape : {Shape{40, 700, 900}, Shape{40, 64, 9000}}) {
      Matrices one({shape}, kind);
      one.Multiply(1);
      Matrices many({shape}, kind);
      many.Multiply(7);
      EXPECT_EQ(one.c, many.c) << Name(kind);
      Matrices few({shape}, kind);
      few.shape.m = 5;
      few.Multiply(1);
      few.c.resize(5 * (shape.n + 2));
      EXPECT_TRUE(std::equal(few.c.begin(), few.c.end(), one.c.begin()))
          << Name(kind);
    }
  }
}

}  // namespace
}  // namespace dapd
