// Tests the norms and SwiGLU of training on a host that simulates the device.
// Results equal float64 results within rounding and, in float32, the CPU's
// results; every number is read once and written once.

#include "common/kernels/cuda/training_rows.h"

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/training_rows.h"
#include "tests/common/kernels/cuda/training_row_checks.h"
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

template <typename T>
class CudaTrainingRowsOnHostTest : public testing::Test {};
using Numbers = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaTrainingRowsOnHostTest, Numbers);

// A block has 1 to 16 warps, each with 512 numbers of a norm's row.
constexpr int64_t kNormSizes[] = {8, 264, 512, 520, 2048, 2560, 8192};

TYPED_TEST(CudaTrainingRowsOnHostTest, NormOfASumIntoWiderRows) {
  using T = TypeParam;
  for (const int64_t size : kNormSizes) {
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
                                .eps = kRowEps,
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
                  .eps = kRowEps},
                 Floats(sum).data(),
                 twin.data());
        ASSERT_LE(Error(twin, Wide(found)), 2e-6);
      });
    }
  }
}

TYPED_TEST(CudaTrainingRowsOnHostTest, GradientOfANormIsAdded) {
  using T = TypeParam;
  for (const int64_t size : kNormSizes) {
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
                                      .eps = kRowEps,
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
                           .eps = kRowEps},
                          Floats(grad).data(),
                          Floats(x).data(),
                          twin.data());
      ASSERT_LE(Error(twin, Wide(grad_x.Read())), 2e-6);
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
