// Compares the element-wise kernels of decoding, on a host that simulates the
// device, bit by bit with the shared mathematics in the kernels' order of sums,
// and within rounding with float64.

#include "common/kernels/cuda/decoder_layer.h"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/decode_attention_math.h"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/float8.h"
#include "tests/fakes/butterfly.h"
#include "tests/fakes/cuda/device_pages.h"
#include "tests/fakes/cuda/expected_head.h"
#include "tests/fakes/cuda/kernel_inputs.h"
#include "tests/fakes/float8_numbers.h"

namespace dapd {
namespace {

using fake::BitsOf;
using fake::DeviceBuffer;
using fake::DevicePages;
using fake::Elements;
using fake::ExpectedHead;
using fake::InSeveralOrders;
using fake::NumberOf;
using fake::RandomNumbers;

constexpr float kNormEps = 1e-6F;

template <typename T>
class CudaLayerOnHostTest : public testing::Test {};
using Numbers = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaLayerOnHostTest, Numbers);

// Returns null unless `wanted`.
template <typename T>
std::unique_ptr<DeviceBuffer<T>> Optional(bool wanted,
                                          const std::string& name,
                                          const std::vector<T>& values) {
  return wanted ? std::make_unique<DeviceBuffer<T>>(name, values) : nullptr;
}

template <typename T>
T* DataOf(const std::unique_ptr<DeviceBuffer<T>>& buffer) {
  return buffer == nullptr ? nullptr : buffer->data();
}

// Adds the squares as a block does: 256 threads take eight numbers at a time,
// then the warps' sums are added in order.
template <typename T>
float BlockSumOfSquares(const T* x, int64_t size) {
  std::vector<float> threads(256, 0.0F);
  for (int64_t i = 0; i < size; ++i) {
    float& thread = threads[static_cast<size_t>(i / 8 % 256)];
    thread = fmaf(ToFloat(x[i]), ToFloat(x[i]), thread);
  }
  float sum = 0.0F;
  for (auto warp = threads.begin(); warp != threads.end(); warp += 32) {
    sum += Butterfly({warp, warp + 32});
  }
  return sum;
}

// Expects |ours - exact| <= roundings * unit roundoff * size.
template <typename T>
void ExpectRounded(
    T ours, double exact, double size, double roundings, const char* what) {
  const double limit = roundings * fake::UnitRoundoff<T>() * size + 1e-30;
  ASSERT_LE(std::abs(ToFloat(ours) - exact), limit) << what;
}

TYPED_TEST(CudaLayerOnHostTest, EmbeddingTakesTheTokensOfTheRowsInUse) {
  using T = TypeParam;
  for (const int64_t hidden : {8, 264, 2056}) {
    InSeveralOrders([&] {
      const std::vector<T> table = RandomNumbers<T>(5 * hidden, 1);
      const DeviceBuffer<T> embedding("embedding", table);
      const DeviceBuffer<int32_t> slots("slot_of_row", {2, -1, 0});
      const DeviceBuffer<int32_t> tokens("tokens", {4, 3, 0});
      const DeviceBuffer<T> x("x", Elements(3 * hidden));
      const EmbeddingArgs args{.rows = {3, slots.data(), nullptr},
                               .tokens = tokens.data(),
                               .embedding = embedding.data(),
                               .x = x.data(),
                               .hidden = hidden};
      ASSERT_KERNEL_RUNS(DapdCudaEmbedding(&args, NumberOf<T>(), nullptr));
      const std::vector<T> found = x.Read();
      for (int64_t i = 0; i < hidden; ++i) {
        ASSERT_EQ(BitsOf(found[i]), BitsOf(table[i])) << "slot 2 has token 0";
        ASSERT_FALSE(x.IsWritten(hidden + i)) << "nobody uses the row";
        ASSERT_EQ(BitsOf(found[2 * hidden + i]), BitsOf(table[4 * hidden + i]));
      }
    });
  }
}

TYPED_TEST(CudaLayerOnHostTest, ResidualNorm) {
  using T = TypeParam;
  struct Case {
    int64_t rows, hidden, out_stride;
    bool delta, bias;
  };
  for (const Case& c :
       {Case{1, 8, 8, false, false},
        Case{3, 264, 272, true, true},
        Case{2, 2048, 2048, true, false},
        Case{1, 2568, 2600, true, true},
        Case{1, 6152, 6152, true, false},
        Case{1, kMaxDecodeHidden, kMaxDecodeHidden, true, true}}) {
    InSeveralOrders([&] {
      const std::vector<T> before = RandomNumbers<T>(c.rows * c.hidden, 1);
      const std::vector<T> added = RandomNumbers<T>(c.rows * c.hidden, 2);
      const std::vector<T> shift = RandomNumbers<T>(c.hidden, 3);
      const std::vector<T> weights = RandomNumbers<T>(c.hidden, 4);
      const DeviceBuffer<T> x("x", before);
      const auto delta = Optional(c.delta, "delta", added);
      const auto bias = Optional(c.bias, "bias", shift);
      DeviceBuffer<T> weight("weight", weights);
      weight.MarkConstant();
      const DeviceBuffer<T> out("out", Elements(c.rows * c.out_stride));
      const ResidualNormArgs args{.num_rows = c.rows,
                                  .x = x.data(),
                                  .delta = DataOf(delta),
                                  .bias = DataOf(bias),
                                  .weight = weight.data(),
                                  .out = out.data(),
                                  .hidden = c.hidden,
                                  .out_stride = c.out_stride,
                                  .eps = kNormEps};
      ASSERT_KERNEL_RUNS(DapdCudaResidualNorm(&args, NumberOf<T>(), nullptr));
      const std::vector<T> sums = x.Read();
      const std::vector<T> normed = out.Read();
      for (int64_t row = 0; row < c.rows; ++row) {
        const T* sum = sums.data() + row * c.hidden;
        double squares = 0.0;
        for (int64_t i = 0; i < c.hidden; ++i) {
          const T old = before[row * c.hidden + i];
          const T expected =
              c.delta ? AddResidual(old,
                                    added[row * c.hidden + i],
                                    c.bias ? ToFloat(shift[i]) : 0.0F)
                      : old;
          ASSERT_EQ(BitsOf(sum[i]), BitsOf(expected)) << i;
          squares += std::pow(static_cast<double>(ToFloat(sum[i])), 2);
        }
        const float scale =
            NormScale(BlockSumOfSquares(sum, c.hidden), c.hidden, kNormEps);
        const double exact_scale =
            1.0 / std::sqrt(squares / static_cast<double>(c.hidden) + kNormEps);
        for (int64_t i = 0; i < c.hidden; ++i) {
          const T ours = normed[row * c.out_stride + i];
          ASSERT_EQ(BitsOf(ours),
                    BitsOf(Normalized(ToFloat(sum[i]), scale, weights[i])));
          const double exact =
              ToFloat(weights[i]) * (ToFloat(sum[i]) * exact_scale);
          ExpectRounded(ours, exact, std::abs(exact), 8.0, "norm");
        }
        for (int64_t i = c.hidden; i < c.out_stride; ++i) {
          ASSERT_FALSE(out.IsWritten(row * c.out_stride + i));
        }
      }
    });
  }
}

TYPED_TEST(CudaLayerOnHostTest, ResidualNormAddsThePartsOfRanksInTheirOrder) {
  using T = TypeParam;
  constexpr int64_t kRows = 3;
  for (const int64_t parts : {2, 3, 8}) {
    for (const int64_t hidden : {8, 2056}) {
      InSeveralOrders([&] {
        const int64_t size = kRows * hidden;
        const std::vector<T> before = RandomNumbers<T>(size, 1);
        const std::vector<float> all = RandomNumbers<float>(parts * size, 2);
        const std::vector<T> shift = RandomNumbers<T>(hidden, 3);
        const DeviceBuffer<T> x("x", before);
        const DeviceBuffer<float> given("parts", all);
        const DeviceBuffer<T> bias("bias", shift);
        DeviceBuffer<T> weight("weight", RandomNumbers<T>(hidden, 4));
        weight.MarkConstant();
        const DeviceBuffer<T> out("out", Elements(size));
        const ResidualNormArgs args{.num_rows = kRows,
                                    .x = x.data(),
                                    .parts = given.data(),
                                    .num_parts = parts,
                                    .bias = bias.data(),
                                    .weight = weight.data(),
                                    .out = out.data(),
                                    .hidden = hidden,
                                    .out_stride = hidden,
                                    .eps = kNormEps};
        ASSERT_KERNEL_RUNS(DapdCudaResidualNorm(&args, NumberOf<T>(), nullptr));
        const std::vector<T> sums = x.Read();
        for (int64_t i = 0; i < size; ++i) {
          float sum = all[i];
          double exact = all[i];
          double magnitude = std::abs(exact);
          for (int64_t part = 1; part < parts; ++part) {
            sum += all[part * size + i];
            exact += all[part * size + i];
            magnitude += std::abs(all[part * size + i]);
          }
          const T delta = FromFloat<T>(sum);
          ASSERT_EQ(BitsOf(sums[i]),
                    BitsOf(AddResidual(
                        before[i], delta, ToFloat(shift[i % hidden]))));
          exact += ToFloat(before[i]);
          exact += ToFloat(shift[i % hidden]);
          magnitude += std::abs(ToFloat(before[i]));
          magnitude += std::abs(ToFloat(shift[i % hidden]));
          ExpectRounded(sums[i],
                        exact,
                        magnitude,
                        static_cast<double>(parts) + 2.0,
                        "sum of the parts");
        }
      });
    }
  }
}

TYPED_TEST(CudaLayerOnHostTest, SwiGlu) {
  using T = TypeParam;
  struct Case {
    int64_t rows, intermediate, out_stride;
    bool bias;
  };
  for (const Case& c : {Case{1, 8, 8, false},
                        Case{3, 72, 80, true},
                        Case{2, 2048, 2048, false},
                        Case{2, 4104, 4112, true}}) {
    InSeveralOrders([&] {
      const std::vector<T> inputs =
          RandomNumbers<T>(c.rows * 2 * c.intermediate, 1, 3.0F);
      const std::vector<T> shift = RandomNumbers<T>(2 * c.intermediate, 2);
      const DeviceBuffer<T> gate_up("gate_up", inputs);
      const auto bias = Optional(c.bias, "bias", shift);
      const DeviceBuffer<T> out("out", Elements(c.rows * c.out_stride));
      const SwiGluArgs args{.num_rows = c.rows,
                            .gate_up = gate_up.data(),
                            .bias = DataOf(bias),
                            .out = out.data(),
                            .intermediate = c.intermediate,
                            .out_stride = c.out_stride};
      ASSERT_KERNEL_RUNS(DapdCudaSwiGlu(&args, NumberOf<T>(), nullptr));
      const std::vector<T> found = out.Read();
      for (int64_t row = 0; row < c.rows; ++row) {
        const auto input = [&](int64_t column) {
          const float value =
              ToFloat(inputs[row * 2 * c.intermediate + column]);
          return c.bias ? RoundedTo<T>(value + ToFloat(shift[column])) : value;
        };
        for (int64_t i = 0; i < c.intermediate; ++i) {
          const T ours = found[row * c.out_stride + i];
          const float gate = input(i);
          const float up = input(c.intermediate + i);
          ASSERT_EQ(BitsOf(ours), BitsOf(Gated<T>(gate, up)));
          const double exact = static_cast<double>(gate) * up /
                               (1.0 + std::exp(-static_cast<double>(gate)));
          ExpectRounded(ours, exact, std::abs(exact), 6.0, "swiglu");
        }
        for (int64_t i = c.intermediate; i < c.out_stride; ++i) {
          ASSERT_FALSE(out.IsWritten(row * c.out_stride + i));
        }
      }
    });
  }
}

struct LayerGeometry {
  int64_t heads, kv_heads, head_dim;
  bool bias, norm;
};

// Cached is the type of the cache's numbers.
template <typename T, typename Cached>
void ExpectQkv(const std::vector<LayerGeometry>& geometries) {
  constexpr int64_t kPagesPerSlot = 2;
  const std::vector<int32_t> positions = {127, 0, 128, 200};  // by slot
  const std::vector<int32_t> slots = {2, -1, 0, 3};
  for (const LayerGeometry& g : geometries) {
    InSeveralOrders([&] {
      const int64_t dim = g.head_dim;
      const int64_t heads = g.heads + 2 * g.kv_heads;
      const auto rows = static_cast<int64_t>(slots.size());
      const std::vector<T> before = RandomNumbers<T>(rows * heads * dim, 1);
      const std::vector<T> shift = RandomNumbers<T>(heads * dim, 2);
      const std::vector<T> q_weights = RandomNumbers<T>(dim, 3);
      const std::vector<T> k_weights = RandomNumbers<T>(dim, 4);
      std::vector<T> cosines;
      std::vector<T> sines;
      for (int64_t i = 0; i < 201 * dim; ++i) {
        const double angle = static_cast<double>(i / dim) *
                             std::pow(1e4, -2.0 * (i % (dim / 2)) / dim);
        cosines.push_back(FromFloat<T>(static_cast<float>(std::cos(angle))));
        sines.push_back(FromFloat<T>(static_cast<float>(std::sin(angle))));
      }
      const DeviceBuffer<T> qkv("qkv", before);
      const auto bias = Optional(g.bias, "bias", shift);
      const auto q_norm = Optional(g.norm, "q_norm", q_weights);
      const auto k_norm = Optional(g.norm, "k_norm", k_weights);
      DeviceBuffer<T> cosine("cosine", cosines);
      DeviceBuffer<T> sine("sine", sines);
      DeviceBuffer<int32_t> slot_of_row("slot_of_row", slots);
      DeviceBuffer<int32_t> at("positions", positions);
      cosine.MarkConstant();
      sine.MarkConstant();
      slot_of_row.MarkConstant();
      at.MarkConstant();
      for (const auto& given : {&q_norm, &k_norm}) {
        if (*given != nullptr) (*given)->MarkConstant();
      }
      const DevicePages<Cached> cache(
          positions, kPagesPerSlot, g.kv_heads, dim);
      const QkvArgs args{.rows = {rows, slot_of_row.data(), at.data()},
                         .qkv = qkv.data(),
                         .bias = DataOf(bias),
                         .q_norm = DataOf(q_norm),
                         .k_norm = DataOf(k_norm),
                         .cosine = cosine.data(),
                         .sine = sine.data(),
                         .cache = cache.View(),
                         .heads = g.heads,
                         .kv_heads = g.kv_heads,
                         .head_dim = dim,
                         .eps = kNormEps};
      ASSERT_KERNEL_RUNS(DapdCudaQkv(&args, NumberOf<T>(), nullptr));
      const std::vector<T> after = qkv.Read();
      int64_t num_cached = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const int32_t slot = slots[row];
        for (int64_t head = 0; head < heads; ++head) {
          const int64_t begin = (row * heads + head) * dim;
          if (slot < 0 || head >= g.heads) {
            for (int64_t i = begin; i < begin + dim; ++i) {
              ASSERT_EQ(BitsOf(after[i]), BitsOf(before[i])) << "left alone";
            }
          }
          if (slot < 0) continue;
          const int64_t position = positions[slot];
          const bool is_query = head < g.heads;
          const bool is_value = head >= g.heads + g.kv_heads;
          const T* norm = !g.norm || is_value ? nullptr
                          : is_query          ? q_weights.data()
                                              : k_weights.data();
          const ExpectedHead<T> expected(
              before.data() + begin,
              g.bias ? shift.data() + head * dim : nullptr,
              norm,
              is_value ? nullptr : cosines.data() + position * dim,
              sines.data() + position * dim,
              dim,
              kNormEps);
          const T* found = after.data() + begin;
          if (!is_query) {
            const int64_t kv_head = (head - g.heads) % g.kv_heads;
            const int64_t part = kv_head + (is_value ? g.kv_heads : 0);
            const Cached* cached = cache.At(slot, position, part);
            ASSERT_TRUE(fake::GlobalMemory().IsWritten(
                cached, static_cast<size_t>(dim) * sizeof(Cached)));
            num_cached += dim;
            if constexpr (std::is_same_v<Cached, Float8>) {
              const Float8Numbers rounded = RoundedToFloat8(expected.rounded);
              num_cached += sizeof(BFloat16);
              ASSERT_EQ(ToFloat(*cache.ScaleAt(slot, position, part)),
                        rounded.scale);
              for (int64_t i = 0; i < dim; ++i) {
                ASSERT_EQ(cached[i].bits, rounded.numbers[i].bits)
                    << "head " << head << ", row " << row;
              }
              continue;
            } else {
              found = cached;
            }
          }
          for (int64_t i = 0; i < dim; ++i) {
            ASSERT_EQ(BitsOf(found[i]), BitsOf(expected.rounded[i]))
                << "head " << head << ", row " << row;
            ExpectRounded(
                found[i], expected.exact[i], expected.size, 12.0, "qkv");
          }
        }
      }
      ASSERT_EQ(cache.NumWritten(), num_cached) << "and nothing else";
    });
  }
}

TYPED_TEST(CudaLayerOnHostTest, QkvTurnsQueriesAndFillsTheCache) {
  ExpectQkv<TypeParam, TypeParam>({{1, 1, 8, false, false},
                                   {14, 2, 64, true, false},
                                   {3, 3, 80, false, true},
                                   {4, 2, 256, true, true}});
}

TEST(CudaFloat8LayerOnHostTest, QkvRoundsKeysAndValuesWithAScaleForEachHead) {
  ExpectQkv<BFloat16, Float8>({{1, 1, 16, false, false},
                               {14, 2, 64, true, false},
                               {3, 3, 80, false, true},
                               {4, 2, 256, true, true}});
}

// So logits that come from it are not finite, and the worker reports that.
TEST(CudaFloat8LayerOnHostTest, ANumberThatIsNotFiniteSpoilsItsHead) {
  constexpr int64_t kDim = 16;
  std::vector<BFloat16> numbers = RandomNumbers<BFloat16>(3 * kDim, 1);
  numbers[2 * kDim + 5] = FromFloat<BFloat16>(INFINITY);  // of the value
  const DeviceBuffer<BFloat16> qkv("qkv", numbers);
  DeviceBuffer<BFloat16> angles(
      "angles", std::vector<BFloat16>(kDim, FromFloat<BFloat16>(1.0F)));
  DeviceBuffer<int32_t> slot_of_row("slot_of_row", std::vector<int32_t>{0});
  DeviceBuffer<int32_t> at("positions", std::vector<int32_t>{0});
  angles.MarkConstant();
  slot_of_row.MarkConstant();
  at.MarkConstant();
  const DevicePages<Float8> cache({0}, 1, 1, kDim);
  const QkvArgs args{.rows = {1, slot_of_row.data(), at.data()},
                     .qkv = qkv.data(),
                     .cosine = angles.data(),
                     .sine = angles.data(),
                     .cache = cache.View(),
                     .heads = 1,
                     .kv_heads = 1,
                     .head_dim = kDim,
                     .eps = kNormEps};
  ASSERT_KERNEL_RUNS(DapdCudaQkv(&args, CudaNumber::kBFloat16, nullptr));
  EXPECT_TRUE(std::isfinite(ToFloat(*cache.ScaleAt(0, 0, 0))));
  EXPECT_FALSE(std::isfinite(ToFloat(*cache.ScaleAt(0, 0, 1))));
  EXPECT_NE(DapdCudaQkv(&args, CudaNumber::kFloat32, nullptr), 0);
  EXPECT_EQ(fake::TakeReport(), "");
}

TYPED_TEST(CudaLayerOnHostTest, ALaunchThatFailsLeavesNoErrorToOthers) {
  // The grid has no blocks, which every device refuses.
  const ResidualNormArgs nothing;
  EXPECT_NE(DapdCudaResidualNorm(&nothing, NumberOf<TypeParam>(), nullptr), 0);
  const ResidualNormArgs wide{.num_rows = 1, .hidden = kMaxDecodeHidden + 8};
  EXPECT_NE(DapdCudaResidualNorm(&wide, NumberOf<TypeParam>(), nullptr), 0);
  EXPECT_FALSE(fake::IsErrorLeft());
}

}  // namespace
}  // namespace dapd
