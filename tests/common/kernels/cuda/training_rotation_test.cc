// Tests the norm and rotation of heads for training on a host that simulates
// the device. Results equal float64 results within rounding and, in float32,
// the CPU's results; every head is read once and written once.

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/cuda/training_rows.h"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/training_rows.h"
#include "tests/common/kernels/cuda/training_row_checks.h"
#include "tests/fakes/cuda/kernel_inputs.h"

namespace dapd {
namespace {

using fake::DeviceBuffer;
using fake::Elements;
using fake::ForbidBeside;
using fake::InSeveralOrders;
using fake::NumberOf;
using fake::RandomNumbers;
using fake::Spread;

struct HeadsShape {
  int64_t rows;
  int64_t heads;
  int64_t dim;
  bool norm;
  int64_t beside = 0;  // numbers of a row of x outside the heads

  int64_t row() const { return heads * dim; }
  int64_t numbers() const { return rows * row(); }
};

// A lane has 8 numbers of each half of a head, or 4 in heads of 8, 24 and 136.
// A head has 8 lanes (up to 128 numbers), 16 or 32; heads of 96 and 144 leave
// lanes idle. A team takes two heads, so some rows have an odd number of heads,
// and some blocks are not full.
constexpr HeadsShape kHeadsShapes[] = {{1, 1, 8, true},
                                       {3, 3, 16, true},
                                       {2, 1, 24, true, 8},
                                       {3, 3, 64, false},
                                       {3, 2, 64, true, 40},
                                       {1, 4, 96, true},
                                       {5, 5, 128, true},
                                       {3, 8, 128, true, 128},
                                       {2, 3, 128, false, 8},
                                       {2, 3, 136, true},
                                       {3, 1, 144, true},
                                       {2, 3, 256, true},
                                       {1, 2, 256, false}};

// Holds the inputs of a call and its results in float64.
template <typename T>
struct Rotation {
  HeadsShape shape;
  std::vector<T> x = RandomNumbers<T>(shape.numbers(), 8);
  std::vector<T> grad = RandomNumbers<T>(shape.numbers(), 9);
  std::vector<T> norm = RandomNumbers<T>(shape.dim, 10);
  std::vector<T> cosine;
  std::vector<T> sine;
  std::vector<double> exact;
  std::vector<double> exact_grad;

  explicit Rotation(const HeadsShape& of) : shape(of) {
    for (int64_t i = 0; i < shape.rows * shape.dim; ++i) {
      const auto angle =
          static_cast<float>(i % (shape.dim / 2) + i / shape.dim);
      cosine.push_back(FromFloat<T>(std::cos(angle)));
      sine.push_back(FromFloat<T>(std::sin(angle)));
    }
    exact.resize(x.size());
    exact_grad.resize(x.size());
    for (int64_t head = 0; head < shape.rows * shape.heads; ++head) {
      ComputeHead(head);
    }
  }

  // Calls f(first number, second number, angle), all as indices, for each pair
  // of a head; the cosine and the sine share the angle's index.
  template <typename F>
  void ForPairs(int64_t head, const F& f) const {
    const int64_t half = shape.dim / 2;
    for (int64_t i = 0; i < half; ++i) {
      const int64_t first = head * shape.dim + i;
      f(first, first + half, head / shape.heads * shape.dim + i);
    }
  }

  void ComputeHead(int64_t head) {
    const std::vector<double> wide = Wide(x);
    const std::vector<double> weights = Wide(norm);
    const int64_t from = head * shape.dim;
    // The rotation's transpose comes first: it gives the norm's gradient its
    // input.
    std::vector<double> pull(x.size());
    ForPairs(head, [&](int64_t a, int64_t b, int64_t angle) {
      const double c = ToFloat(cosine[angle]);
      const double s = ToFloat(sine[angle]);
      pull[a] = ToFloat(grad[a]) * c + ToFloat(grad[b]) * s;
      pull[b] = ToFloat(grad[b]) * c - ToFloat(grad[a]) * s;
    });
    const ExactNorm normed(
        wide.data() + from, weights.data(), pull.data() + from, shape.dim);
    const auto value = [&](int64_t i) {
      return shape.norm ? normed.y[i - from] : wide[i];
    };
    ForPairs(head, [&](int64_t a, int64_t b, int64_t angle) {
      const double c = ToFloat(cosine[angle]);
      const double s = ToFloat(sine[angle]);
      exact[a] = value(a) * c - value(b) * s;
      exact[b] = value(b) * c + value(a) * s;
    });
    for (int64_t i = from; i < from + shape.dim; ++i) {
      exact_grad[i] = shape.norm ? normed.grad[i - from] : pull[i];
    }
  }

  // Without a norm, each result is rounded as Rotate() rounds it.
  void ExpectRounded(const std::vector<T>& y) const {
    for (int64_t head = 0; head < shape.rows * shape.heads; ++head) {
      ForPairs(head, [&](int64_t a, int64_t b, int64_t angle) {
        const RotatedPair pair =
            Rotate(ToFloat(x[a]), ToFloat(x[b]), cosine[angle], sine[angle]);
        ASSERT_EQ(pair.first, ToFloat(y[a])) << shape.dim;
        ASSERT_EQ(pair.second, ToFloat(y[b])) << shape.dim;
      });
    }
  }

  // Compares with the CPU's rows, which are float32.
  void ExpectNearTwins(const std::vector<T>& y,
                       const std::vector<T>& grad_x) const {
    const std::vector<float> weights = Floats(norm);
    const std::vector<float> cosines = Floats(cosine);
    const std::vector<float> sines = Floats(sine);
    const HeadRows<float> rows{.rows = shape.rows,
                               .heads = shape.heads,
                               .head_dim = shape.dim,
                               .norm = shape.norm ? weights.data() : nullptr,
                               .eps = kRowEps,
                               .cos = cosines.data(),
                               .sin = sines.data()};
    std::vector<float> twin(x.size());
    NormAndRotateRows(1, rows, Floats(x).data(), twin.data());
    ASSERT_LE(Error(twin, Wide(y)), 2e-6) << shape.dim;
    twin = Floats(grad);
    NormAndRotateBackwardRows(1, rows, Floats(x).data(), twin.data());
    ASSERT_LE(Error(twin, Wide(grad_x)), 2e-6) << shape.dim;
  }
};

template <typename T>
class CudaTrainingRotationOnHostTest : public testing::Test {};
using Numbers = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaTrainingRotationOnHostTest, Numbers);

TYPED_TEST(CudaTrainingRotationOnHostTest, HeadsAreNormedAndTurnedAndBack) {
  using T = TypeParam;
  for (const HeadsShape& shape : kHeadsShapes) {
    const Rotation<T> rotation(shape);
    const int64_t numbers = shape.numbers();
    const int64_t stride = shape.row() + shape.beside;
    const auto spread = Spread(rotation.x, shape.row(), stride);
    InSeveralOrders([&] {
      DeviceBuffer<T> from("x", spread);
      ForbidBeside(shape.rows, shape.row(), stride, &from);
      const DeviceBuffer<T> norm("norm", rotation.norm);
      const DeviceBuffer<T> cosine("cosine", rotation.cosine);
      const DeviceBuffer<T> sine("sine", rotation.sine);
      const DeviceBuffer<T> y("y", Elements(numbers));
      const DeviceBuffer<T> grads("grad", rotation.grad);
      RotateRowsArgs args{.rows = shape.rows,
                          .heads = shape.heads,
                          .head_dim = shape.dim,
                          .eps = kRowEps,
                          .x = from.data(),
                          .x_stride = stride,
                          .norm = shape.norm ? norm.data() : nullptr,
                          .cosine = cosine.data(),
                          .sine = sine.data(),
                          .y = y.data()};
      fake::TakeTraffic();
      ASSERT_KERNEL_RUNS(DapdCudaRotateRows(&args, NumberOf<T>(), nullptr));
      ExpectTraffic<T>(numbers, numbers, /*shared_reads=*/2 * numbers);
      args.y = grads.data();
      ASSERT_KERNEL_RUNS(
          DapdCudaRotateRowsBackward(&args, NumberOf<T>(), nullptr));
      ExpectTraffic<T>((shape.norm ? 2 : 1) * numbers,
                       numbers,
                       /*shared_reads=*/2 * numbers);
      ASSERT_LE(Error(y.Read(), rotation.exact), Limit<T>()) << shape.dim;
      ASSERT_LE(Error(grads.Read(), rotation.exact_grad), Limit<T>())
          << shape.dim;
      if (!shape.norm) rotation.ExpectRounded(y.Read());
      if (std::is_same_v<T, float>) {
        rotation.ExpectNearTwins(y.Read(), grads.Read());
      }
    });
  }
}

TYPED_TEST(CudaTrainingRotationOnHostTest, HeadsAreTurnedWhereTheyAre) {
  using T = TypeParam;
  const Rotation<T> rotation({.rows = 3, .heads = 5, .dim = 128, .norm = true});
  InSeveralOrders([&] {
    const DeviceBuffer<T> x("x", rotation.x);
    const DeviceBuffer<T> norm("norm", rotation.norm);
    const DeviceBuffer<T> cosine("cosine", rotation.cosine);
    const DeviceBuffer<T> sine("sine", rotation.sine);
    const RotateRowsArgs args{.rows = 3,
                              .heads = 5,
                              .head_dim = 128,
                              .eps = kRowEps,
                              .x = x.data(),
                              .x_stride = rotation.shape.row(),
                              .norm = norm.data(),
                              .cosine = cosine.data(),
                              .sine = sine.data(),
                              .y = x.data()};
    ASSERT_KERNEL_RUNS(DapdCudaRotateRows(&args, NumberOf<T>(), nullptr));
    ASSERT_LE(Error(x.Read(), rotation.exact), Limit<T>());
  });
}

}  // namespace
}  // namespace dapd
