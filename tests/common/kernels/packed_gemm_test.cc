#include "common/kernels/packed_gemm.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/bfloat16.h"

namespace dapd {
namespace {

struct Shape {
  int64_t m, n, k;
};

// Operands with rows further apart than they are long.
struct Matrices {
  Shape shape;
  bool bfloat16;
  bool transposed;
  std::vector<float> a, b, c;
  std::vector<BFloat16> b_halves;

  Matrices(Shape s, bool halves, bool transpose)
      : shape(s), bfloat16(halves), transposed(transpose) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    a.resize(s.m * (s.k + 3));
    b.resize(transposed ? s.n * (s.k + 1) : s.k * (s.n + 1));
    c.assign(s.m * (s.n + 2), -77.0F);
    // Values that bfloat16 holds, so that both kinds of head are exact.
    for (float& x : a) x = RoundedTo<BFloat16>(uniform(random));
    for (float& x : b) x = RoundedTo<BFloat16>(uniform(random));
    for (const float x : b) b_halves.push_back(FromFloat<BFloat16>(x));
  }

  void Multiply(int num_threads) {
    PackedGemm(
        {.m = shape.m,
         .n = shape.n,
         .k = shape.k,
         .a = a.data(),
         .a_stride = shape.k + 3,
         .b = bfloat16 ? static_cast<const void*>(b_halves.data()) : b.data(),
         .b_stride = (transposed ? shape.k : shape.n) + 1,
         .b_is_bfloat16 = bfloat16,
         .b_is_transposed = transposed,
         .c = c.data(),
         .c_stride = shape.n + 2},
        num_threads);
  }

  // Largest error of an entry in units of sqrt(k) float roundings.
  double WorstError() const {
    double worst = 0.0;
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        double sum = 0.0;
        for (int64_t k = 0; k < shape.k; ++k) {
          sum += static_cast<double>(a[i * (shape.k + 3) + k]) *
                 (transposed ? b[j * (shape.k + 1) + k]
                             : b[k * (shape.n + 1) + j]);
        }
        worst = std::max(worst, std::abs(sum - c[i * (shape.n + 2) + j]));
      }
    }
    return worst / (std::sqrt(static_cast<double>(shape.k)) * 1.2e-7);
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
    for (const bool bfloat16 : {false, true}) {
      for (const bool transposed : {false, true}) {
        Matrices matrices(shape, bfloat16, transposed);
        matrices.Multiply(2);
        const double error = matrices.WorstError();
        const std::string name =
            std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " +
            std::to_string(shape.k) + (bfloat16 ? " bfloat16" : " float32") +
            (transposed ? " transposed" : "");
        std::cout << name << ": " << error << "\n";
        EXPECT_LT(error, 20.0) << name;
        for (int64_t i = 0; i < shape.m; ++i) {
          EXPECT_EQ(matrices.c[i * (shape.n + 2) + shape.n], -77.0F)
              << name << ": what lies between the rows stays";
        }
      }
    }
  }
}

TEST(PackedGemmTest, NeitherThreadsNorOtherRowsChangeABit) {
  for (const bool bfloat16 : {false, true}) {
    for (const Shape& shape : {Shape{40, 700, 900}, Shape{40, 64, 9000}}) {
      Matrices one({shape}, bfloat16, true);
      one.Multiply(1);
      Matrices many({shape}, bfloat16, true);
      many.Multiply(7);
      EXPECT_EQ(one.c, many.c);
      Matrices few({shape}, bfloat16, true);
      few.shape.m = 5;
      few.Multiply(1);
      few.c.resize(5 * (shape.n + 2));
      EXPECT_TRUE(std::equal(few.c.begin(), few.c.end(), one.c.begin()));
    }
  }
}

}  // namespace
}  // namespace dapd
