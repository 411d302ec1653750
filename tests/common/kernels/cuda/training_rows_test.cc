// The element-wise kernels of training on a host that simulates the device:
// within rounding what float64 gives, in float32 also what the CPU's rows give,
// every number read once and written once.

#include "common/kernels/cuda/training_rows.h"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/training_rows.h"
#include "tests/fakes/cuda/kernel_inputs.h"

namespace dapd {
namespace {

using fake::DeviceBuffer;
using fake::Elements;
using fake::ForbidBeside;
using fake::Gathered;
using fake::InSeveralOrders;
using fake::NumberOf;
using fake::RandomNumbers;
using fake::Spread;

constexpr float kEps = 1e-6F;

template <typename T>
class CudaTrainingRowsOnHostTest : public testing::Test {};
using Numbers = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaTrainingRowsOnHostTest, Numbers);

template <typename T>
std::vector<double> Wide(const std::vector<T>& values) {
  std::vector<double> wide;
  for (const T value : values) wide.push_back(ToFloat(value));
  return wide;
}

template <typename T>
std::vector<float> Floats(const std::vector<T>& values) {
  std::vector<float> floats;
  for (const T value : values) floats.push_back(ToFloat(value));
  return floats;
}

// The largest difference beside the largest number.
template <typename T>
double Error(const std::vector<T>& ours, const std::vector<double>& exact) {
  double worst = 0.0;
  double largest = 1e-30;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(ToFloat(ours[i]) - exact[i]);
    if (!(error <= worst)) worst = error;
    largest = std::max(largest, std::abs(exact[i]));
  }
  return worst / largest;
}

// A few roundings to T, or of a float32 sum.
template <typename T>
double Limit() {
  return std::max(4.0 * fake::UnitRoundoff<T>(), 2e-6);
}

// RMSNorm of one row and its gradient.
struct ExactNorm {
  std::vector<double> y;
  std::vector<double> grad;

  ExactNorm(const double* x,
            const double* weight,
            const double* grad_y,
            int64_t size) {
    double squares = 0.0;
    double products = 0.0;
    for (int64_t i = 0; i < size; ++i) {
      squares += x[i] * x[i];
      products += grad_y[i] * weight[i] * x[i];
    }
    const auto n = static_cast<double>(size);
    const double r = 1.0 / std::sqrt(squares / n + static_cast<double>(kEps));
    for (int64_t i = 0; i < size; ++i) {
      y.push_back(weight[i] * x[i] * r);
      grad.push_back(r * (grad_y[i] * weight[i] - x[i] * r * r * products / n));
    }
  }
};

template <typename T>
void ExpectTraffic(int64_t reads, int64_t writes, int64_t shared_reads) {
  const fake::Traffic traffic = fake::TakeTraffic();
  const auto bytes = [](int64_t count) {
    return static_cast<uint64_t>(count) * sizeof(T);
  };
  EXPECT_EQ(traffic.bytes_written, bytes(writes));
  EXPECT_GE(traffic.bytes_read, bytes(reads));
  EXPECT_LE(traffic.bytes_read, bytes(reads + shared_reads));
}

TYPED_TEST(CudaTrainingRowsOnHostTest, NormOfASumIntoWiderRows) {
  using T = TypeParam;
  for (const int64_t size : {8, 264, 2048, 8192}) {
    for (const bool has_delta : {false, true}) {
      const int64_t rows = size > 1000 ? 1 : 3;
      const int64_t stride = size + 16;
      const auto x = RandomNumbers<T>(rows * size, 1);
      const auto added = RandomNumbers<T>(rows * size, 2);
      const auto weights = RandomNumbers<T>(size, 3);
      InSeveralOrders([&] {
        const DeviceBuffer<T> from("x", x);
        const DeviceBuffer<T> delta("delta", added);
        const DeviceBuffer<T> weight("weight", weights);
        DeviceBuffer<T> y("y", Elements(rows * stride));
        ForbidBeside(rows, size, stride, &y);
        const NormRowsArgs args{.rows = rows,
                                .size = size,
                                .eps = kEps,
                                .x = from.data(),
                                .delta = has_delta ? delta.data() : nullptr,
                                .sum = delta.data(),
                                .weight = weight.data(),
                                .y = y.data(),
                                .y_stride = stride};
        fake::TakeTraffic();
        ASSERT_KERNEL_RUNS(DapdCudaNormRows(&args, NumberOf<T>(), nullptr));
        const int64_t numbers = rows * size;
        ExpectTraffic<T>(has_delta ? 2 * numbers : numbers,
                         has_delta ? 2 * numbers : numbers,
                         /*shared_reads=*/numbers);
        const std::vector<T> sum = has_delta ? delta.Read() : x;
        for (int64_t i = 0; i < numbers && has_delta; ++i) {
          ASSERT_EQ(ToFloat(sum[i]),
                    RoundedTo<T>(ToFloat(x[i]) + ToFloat(added[i])));
        }
        const std::vector<double> wide = Wide(sum);
        const std::vector<double> w = Wide(weights);
        std::vector<T> found;
        std::vector<double> exact;
        for (int64_t r = 0; r < rows; ++r) {
          const ExactNorm norm(
              wide.data() + r * size, w.data(), w.data(), size);
          exact.insert(exact.end(), norm.y.begin(), norm.y.end());
          found.insert(
              found.end(), y.data() + r * stride, y.data() + r * stride + size);
        }
        ASSERT_LE(Error(found, exact), Limit<T>()) << size;
        if (!std::is_same_v<T, float>) return;
        std::vector<float> twin(static_cast<size_t>(numbers));
        const std::vector<float> weight_floats = Floats(weights);
        NormRows(1,
                 {.rows = rows,
                  .size = size,
                  .weight = weight_floats.data(),
                  .eps = kEps},
                 Floats(sum).data(),
                 twin.data());
        ASSERT_LE(Error(twin, Wide(found)), 2e-6);
      });
    }
  }
}

TYPED_TEST(CudaTrainingRowsOnHostTest, GradientOfANormIsAdded) {
  using T = TypeParam;
  for (const int64_t size : {8, 264, 2056}) {
    const int64_t rows = 2;
    const auto grad = RandomNumbers<T>(rows * size, 4);
    const auto x = RandomNumbers<T>(rows * size, 5);
    const auto weights = RandomNumbers<T>(size, 6);
    const auto before = RandomNumbers<T>(rows * size, 7);
    InSeveralOrders([&] {
      const DeviceBuffer<T> grads("grad", grad);
      const DeviceBuffer<T> from("x", x);
      const DeviceBuffer<T> weight("weight", weights);
      const DeviceBuffer<T> grad_x("grad_x", before);
      const NormRowsBackwardArgs args{.rows = rows,
                                      .size = size,
                                      .eps = kEps,
                                      .grad = grads.data(),
                                      .x = from.data(),
                                      .weight = weight.data(),
                                      .grad_x = grad_x.data()};
      fake::TakeTraffic();
      ASSERT_KERNEL_RUNS(
          DapdCudaNormRowsBackward(&args, NumberOf<T>(), nullptr));
      ExpectTraffic<T>(3 * rows * size, rows * size, 2 * rows * size);
      std::vector<double> exact;
      for (int64_t r = 0; r < rows; ++r) {
        const ExactNorm norm(Wide(x).data() + r * size,
                             Wide(weights).data(),
                             Wide(grad).data() + r * size,
                             size);
        for (int64_t i = 0; i < size; ++i) {
          exact.push_back(ToFloat(before[r * size + i]) + norm.grad[i]);
        }
      }
      ASSERT_LE(Error(grad_x.Read(), exact), Limit<T>()) << size;
      if (!std::is_same_v<T, float>) return;
      std::vector<float> twin = Floats(before);
      const std::vector<float> weight_floats = Floats(weights);
      AddNormBackwardRows(1,
                          {.rows = rows,
                           .size = size,
                           .weight = weight_floats.data(),
                           .eps = kEps},
                          Floats(grad).data(),
                          Floats(x).data(),
                          twin.data());
      ASSERT_LE(Error(twin, Wide(grad_x.Read())), 2e-6);
    });
  }
}

TYPED_TEST(CudaTrainingRowsOnHostTest, HeadsAreNormedAndTurnedAndBack) {
  using T = TypeParam;
  struct Case {
    int64_t rows, heads, dim;
    bool norm;
    int64_t beside = 0;  // numbers of a row of x that are no heads
  };
  for (const Case& c : {Case{1, 1, 8, true},
                        Case{3, 3, 64, false},
                        Case{2, 5, 128, true},
                        Case{3, 2, 64, true, 40},
                        Case{2, 2, 256, true}}) {
    const int64_t numbers = c.rows * c.heads * c.dim;
    const int64_t row = c.heads * c.dim;
    const int64_t stride = row + c.beside;
    const auto x = RandomNumbers<T>(numbers, 8);
    const auto spread = Spread(x, row, stride);
    const auto grad = RandomNumbers<T>(numbers, 9);
    const auto weights = RandomNumbers<T>(c.dim, 10);
    std::vector<T> cosines(static_cast<size_t>(c.rows * c.dim));
    std::vector<T> sines(cosines.size());
    for (size_t i = 0; i < cosines.size(); ++i) {
      const auto angle = static_cast<float>(i % (c.dim / 2) + i / c.dim);
      cosines[i] = FromFloat<T>(std::cos(angle));
      sines[i] = FromFloat<T>(std::sin(angle));
    }
    InSeveralOrders([&] {
      DeviceBuffer<T> from("x", spread);
      ForbidBeside(c.rows, row, stride, &from);
      const DeviceBuffer<T> norm("norm", weights);
      const DeviceBuffer<T> cosine("cosine", cosines);
      const DeviceBuffer<T> sine("sine", sines);
      const DeviceBuffer<T> y("y", Elements(numbers));
      const DeviceBuffer<T> grads("grad", grad);
      RotateRowsArgs args{.rows = c.rows,
                          .heads = c.heads,
                          .head_dim = c.dim,
                          .eps = kEps,
                          .x = from.data(),
                          .x_stride = stride,
                          .norm = c.norm ? norm.data() : nullptr,
                          .cosine = cosine.data(),
                          .sine = sine.data(),
                          .y = y.data()};
      ASSERT_KERNEL_RUNS(DapdCudaRotateRows(&args, NumberOf<T>(), nullptr));
      args.y = grads.data();
      ASSERT_KERNEL_RUNS(
          DapdCudaRotateRowsBackward(&args, NumberOf<T>(), nullptr));
      const auto [wide, pull, w, cos, sin] = std::tuple(
          Wide(x), Wide(grad), Wide(weights), Wide(cosines), Wide(sines));
      std::vector<double> exact(wide.size());
      std::vector<double> exact_grad(wide.size());
      const int64_t half = c.dim / 2;
      for (int64_t h = 0; h < c.rows * c.heads; ++h) {
        const double* angle_cos = cos.data() + h / c.heads * c.dim;
        const double* angle_sin = sin.data() + h / c.heads * c.dim;
        // The rotation's transpose first: what the norm's gradient takes.
        std::vector<double> back(static_cast<size_t>(c.dim));
        for (int64_t i = 0; i < half; ++i) {
          const double a = pull[h * c.dim + i];
          const double b = pull[h * c.dim + half + i];
          back[i] = a * angle_cos[i] + b * angle_sin[i];
          back[half + i] = b * angle_cos[i] - a * angle_sin[i];
        }
        const ExactNorm normed(
            wide.data() + h * c.dim, w.data(), back.data(), c.dim);
        for (int64_t i = 0; i < half; ++i) {
          const double a = c.norm ? normed.y[i] : wide[h * c.dim + i];
          const double b =
              c.norm ? normed.y[half + i] : wide[h * c.dim + half + i];
          exact[h * c.dim + i] = a * angle_cos[i] - b * angle_sin[i];
          exact[h * c.dim + half + i] = b * angle_cos[i] + a * angle_sin[i];
        }
        for (int64_t i = 0; i < c.dim; ++i) {
          exact_grad[h * c.dim + i] = c.norm ? normed.grad[i] : back[i];
        }
      }
      ASSERT_LE(Error(y.Read(), exact), Limit<T>()) << c.dim;
      ASSERT_LE(Error(grads.Read(), exact_grad), Limit<T>()) << c.dim;
      if (!std::is_same_v<T, float>) return;
      const auto [cos32, sin32, w32] =
          std::tuple(Floats(cosines), Floats(sines), Floats(weights));
      const HeadRows<float> shape{.rows = c.rows,
                                  .heads = c.heads,
                                  .head_dim = c.dim,
                                  .norm = c.norm ? w32.data() : nullptr,
                                  .eps = kEps,
                                  .cos = cos32.data(),
                                  .sin = sin32.data()};
      std::vector<float> twin(wide.size());
      NormAndRotateRows(1, shape, Floats(x).data(), twin.data());
      ASSERT_LE(Error(twin, Wide(y.Read())), 2e-6);
      twin = Floats(grad);
      NormAndRotateBackwardRows(1, shape, Floats(x).data(), twin.data());
      ASSERT_LE(Error(twin, Wide(grads.Read())), 2e-6);
    });
  }
}

TYPED_TEST(CudaTrainingRowsOnHostTest, GatedProductsAndTheirGradients) {
  using T = TypeParam;
  for (const int64_t size : {8, 72, 2056}) {
    const int64_t rows = 3;
    const int64_t stride = size + 8;
    const int64_t in_stride = size == 72 ? 2 * size : size;
    const auto gates = RandomNumbers<T>(rows * size, 11, 5.0F);
    const auto ups = RandomNumbers<T>(rows * size, 12);
    const auto pulls = RandomNumbers<T>(rows * stride, 13);
    InSeveralOrders([&] {
      DeviceBuffer<T> gate("gate", Spread(gates, size, in_stride));
      DeviceBuffer<T> up("up", Spread(ups, size, in_stride));
      ForbidBeside(rows, size, in_stride, &gate);
      ForbidBeside(rows, size, in_stride, &up);
      DeviceBuffer<T> out("out", Elements(rows * stride));
      DeviceBuffer<T> pull("pull", pulls);
      ForbidBeside(rows, size, stride, &out);
      ForbidBeside(rows, size, stride, &pull);
      GatedRowsArgs args{.rows = rows,
                         .size = size,
                         .gate = gate.data(),
                         .up = up.data(),
                         .in_stride = in_stride,
                         .out = out.data(),
                         .out_stride = stride};
      fake::TakeTraffic();
      ASSERT_KERNEL_RUNS(DapdCudaGatedRows(&args, NumberOf<T>(), nullptr));
      ExpectTraffic<T>(2 * rows * size, rows * size, 0);
      args.out = pull.data();
      ASSERT_KERNEL_RUNS(
          DapdCudaGatedRowsBackward(&args, NumberOf<T>(), nullptr));
      ExpectTraffic<T>(3 * rows * size, 2 * rows * size, 0);
      std::vector<T> found;
      std::vector<double> exact;
      std::vector<double> exact_gate;
      std::vector<double> exact_up;
      for (int64_t i = 0; i < rows * size; ++i) {
        const double g = ToFloat(gates[i]);
        const double u = ToFloat(ups[i]);
        const int64_t at = i / size * stride + i % size;
        const double dy = ToFloat(pulls[at]);
        const double sigmoid = 1.0 / (1.0 + std::exp(-g));
        found.push_back(out.data()[at]);
        exact.push_back(g * sigmoid * u);
        exact_gate.push_back(dy * u * sigmoid * (1.0 + g * (1.0 - sigmoid)));
        exact_up.push_back(dy * g * sigmoid);
      }
      ASSERT_LE(Error(found, exact), Limit<T>());
      ASSERT_LE(Error(Gathered(gate.Read(), size, in_stride), exact_gate),
                Limit<T>());
      ASSERT_LE(Error(Gathered(up.Read(), size, in_stride), exact_up),
                Limit<T>());
      if (!std::is_same_v<T, float>) return;
      std::vector<float> twin(found.size());
      GatedRows(1,
                Floats(gates).data(),
                Floats(ups).data(),
                rows * size,
                twin.data());
      ASSERT_LE(Error(twin, Wide(found)), 2e-6);
    });
  }
}

}  // namespace
}  // namespace dapd
