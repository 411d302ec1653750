// Compares decode attention, on a host that simulates the device, with
// attention in float64 and, in float32 bit by bit, with the host twin, which
// keeps the kernel's order of splits, pages, lanes and groups.

#include "common/kernels/cuda/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/decode_attention_math.h"
#include "common/kernels/float8.h"
#include "tests/fakes/attention_twin.h"
#include "tests/fakes/cuda/device_pages.h"
#include "tests/fakes/cuda/kernel_inputs.h"
#include "tests/fakes/float8_numbers.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

using fake::BitsOf;
using fake::DeviceBuffer;
using fake::DevicePages;
using fake::Elements;
using fake::InSeveralOrders;
using fake::NumberOf;
using fake::RandomNumbers;

template <typename T>
class CudaAttentionOnHostTest : public testing::Test {};
using Numbers = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaAttentionOnHostTest, Numbers);

struct Geometry {
  int64_t heads, kv_heads, head_dim;
};

// Numbers of the cache as the kernel keeps them.
enum class Kept { kAsTheyAre, kRoundedToFloat8 };

// Writes keys and values up to each slot's position and nothing behind it. The
// newest token is not marked constant, because the launch before an attention
// may still be writing it.
template <typename T>
void Fill(const Geometry& g,
          const std::vector<int32_t>& positions,
          Kept kept,
          DevicePages<T>* cache) {
  uint32_t seed = 10;
  for (size_t at = 0; at < positions.size(); ++at) {
    const auto slot = static_cast<int64_t>(at);
    for (int64_t token = 0; token <= positions[at]; ++token) {
      for (int64_t part = 0; part < 2 * g.kv_heads; ++part) {
        ++seed;
        if constexpr (std::is_same_v<T, float>) {
          cache->Write(slot, token, part, RandomNumbers<T>(g.head_dim, seed));
        } else {
          const auto numbers = RandomNumbers<BFloat16>(g.head_dim, seed);
          if constexpr (std::is_same_v<T, Float8>) {
            const Float8Numbers rounded = RoundedToFloat8(numbers);
            cache->Write(slot, token, part, rounded.numbers);
            cache->WriteScale(slot, token, part, rounded.scale);
          } else {
            cache->Write(slot,
                         token,
                         part,
                         kept == Kept::kAsTheyAre
                             ? numbers
                             : RoundedToFloat8(numbers).Widened());
          }
        }
        if (token < positions[at]) cache->MarkConstant(slot, token, part);
      }
    }
  }
}

// Returns an error bound for each dimension. Every addition rounds in a score's
// sum and in the sum of weighted values; the bfloat16 kernel has weights of 16
// bits, and the result is rounded once.
template <typename T>
std::vector<double> ErrorBound(const AttentionInputs& in,
                               const std::vector<double>& exact) {
  constexpr double kRoundoff = 0x1.0p-24;
  AttentionInputs magnitudes = in;
  for (float& value : magnitudes.v) value = std::abs(value);
  const std::vector<double> weighted = AttentionInDouble(magnitudes);
  double score = 0.0;  // the largest sum of magnitudes
  for (int64_t token = 0; token < in.tokens; ++token) {
    double sum = 0.0;
    for (int64_t i = 0; i < in.head_dim; ++i) {
      sum += std::abs(static_cast<double>(in.q[i]) *
                      in.k[token * in.head_dim + i]);
    }
    score = std::max(score, sum / std::sqrt(in.head_dim));
  }
  // A weight is e to a score, divided by the sum of such powers.
  const double weight = 2 * (in.head_dim + 4) * kRoundoff * score +
                        (std::is_same_v<T, float> ? 0.0 : 0x1.0p-16) +
                        8 * kRoundoff;
  std::vector<double> bound;
  for (size_t i = 0; i < exact.size(); ++i) {
    bound.push_back((weight + (in.tokens + 8) * kRoundoff) * weighted[i] +
                    fake::UnitRoundoff<T>() * std::abs(exact[i]));
  }
  return bound;
}

// A launch over rows of random queries, keys and values. Row r has slot
// slots[r]; -1 marks an unused row. Cached is the type of the cache. The
// numbers of the first rows and slots do not depend on how many there are.
template <typename T, typename Cached = T>
struct Launched {
  Launched(const Geometry& g,
           const std::vector<int32_t>& positions,
           const std::vector<int32_t>& slots,
           int64_t max_tokens,
           Kept kept = Kept::kAsTheyAre)
      : rows(static_cast<int64_t>(slots.size())),
        width(g.heads * g.head_dim),
        q_stride(width + 2 * g.kv_heads * g.head_dim),
        out_stride(width + 8),
        queries(RandomNumbers<T>(rows * q_stride, 1)),
        cache(positions, max_tokens / kPageTokens, g.kv_heads, g.head_dim),
        out("out", Elements(rows * out_stride)),
        counters(
            "counters",
            std::vector<uint32_t>(static_cast<size_t>(rows * g.kv_heads), 0U)) {
    DeviceBuffer<T> q("q", queries);
    for (int64_t row = 0; row < rows; ++row) {
      q.Forbid(row * q_stride + width, q_stride - width);
    }
    Fill(g, positions, kept, &cache);
    DeviceBuffer<int32_t> slot_of_row("slot_of_row", slots);
    DeviceBuffer<int32_t> at("positions", positions);
    slot_of_row.MarkConstant();
    at.MarkConstant();
    const DeviceBuffer<float> scratch(
        "scratch",
        Elements(DapdCudaDecodeAttentionScratch(
            rows, g.heads, g.head_dim, max_tokens)));
    const DecodeAttentionArgs args{
        .rows = {rows, slot_of_row.data(), at.data()},
        .q = q.data(),
        .cache = cache.View(),
        .out = out.data(),
        .scratch = scratch.data(),
        .counters = counters.data(),
        .q_stride = q_stride,
        .out_stride = out_stride,
        .heads = g.heads,
        .kv_heads = g.kv_heads,
        .head_dim = g.head_dim,
        .max_tokens = max_tokens};
    fake::TakeTraffic();
    Run(args);
    traffic = fake::TakeTraffic();
  }

  int64_t rows, width, q_stride, out_stride;
  std::vector<T> queries;
  DevicePages<Cached> cache;
  DeviceBuffer<T> out;
  DeviceBuffer<uint32_t> counters;
  fake::Traffic traffic;

 private:
  static void Run(const DecodeAttentionArgs& args) {
    ASSERT_KERNEL_RUNS(DapdCudaDecodeAttention(&args, NumberOf<T>(), nullptr));
  }
};

// `worst` becomes the largest ratio of an error to its bound.
template <typename T>
void ExpectAttention(const Geometry& g,
                     const std::vector<int32_t>& positions,
                     const std::vector<int32_t>& slots,
                     int64_t max_tokens,
                     double* worst) {
  const Launched<T> launched(g, positions, slots, max_tokens);
  if (testing::Test::HasFatalFailure()) return;
  const auto& [rows,
               width,
               q_stride,
               out_stride,
               queries,
               cache,
               out,
               counters,
               traffic] = launched;
  // The next launch needs counters of zero.
  for (const uint32_t count : counters.Read()) ASSERT_EQ(count, 0U);
  const std::vector<T> found = out.Read();
  for (int64_t row = 0; row < rows; ++row) {
    if (slots[row] < 0) {
      for (int64_t i = 0; i < out_stride; ++i) {
        ASSERT_FALSE(out.IsWritten(row * out_stride + i));
      }
      continue;
    }
    const int32_t slot = slots[row];
    for (int64_t head = 0; head < g.heads; ++head) {
      AttentionInputs in;
      in.head_dim = static_cast<int>(g.head_dim);
      in.tokens = positions[slot] + 1;
      for (int64_t i = 0; i < g.head_dim; ++i) {
        in.q.push_back(
            ToFloat(queries[row * q_stride + head * g.head_dim + i]));
      }
      const int64_t kv_head = head / (g.heads / g.kv_heads);
      for (int64_t token = 0; token < in.tokens; ++token) {
        for (int64_t i = 0; i < g.head_dim; ++i) {
          in.k.push_back(ToFloat(cache.At(slot, token, kv_head)[i]));
          in.v.push_back(
              ToFloat(cache.At(slot, token, g.kv_heads + kv_head)[i]));
        }
      }
      const std::vector<double> exact = AttentionInDouble(in);
      const std::vector<double> bound = ErrorBound<T>(in, exact);
      std::vector<float> twin;
      if (std::is_same_v<T, float>) twin = AttentionTwin(in);
      for (int64_t i = 0; i < g.head_dim; ++i) {
        const T ours = found[row * out_stride + head * g.head_dim + i];
        if (!twin.empty()) {
          ASSERT_EQ(BitsOf(ours), BitsOf(FromFloat<T>(twin[i])))
              << "row " << row << ", head " << head << ", dimension " << i;
        }
        const double error = std::abs(ToFloat(ours) - exact[i]);
        *worst = Worse(*worst, error / bound[i]);
        ASSERT_LE(error, bound[i])
            << "row " << row << ", head " << head << ", dimension " << i;
      }
    }
    for (int64_t i = width; i < out_stride; ++i) {
      ASSERT_FALSE(out.IsWritten(row * out_stride + i));
    }
  }
}

// Checks every geometry with the threads in several orders.
template <typename T>
void ExpectAttentionOfAll(const std::vector<Geometry>& geometries,
                          const std::vector<int32_t>& positions,
                          const std::vector<int32_t>& slots,
                          int64_t max_tokens) {
  double worst = 0.0;
  for (const Geometry& g : geometries) {
    InSeveralOrders(
        [&] { ExpectAttention<T>(g, positions, slots, max_tokens, &worst); });
  }
  std::cout << "worst error " << worst << " of the bound\n";
}

TYPED_TEST(CudaAttentionOnHostTest, EachHeadIsTheTwinsAndAttentionInFloat64) {
  // No row has slot 1, and the bucket is longer than its sequences.
  ExpectAttentionOfAll<TypeParam>({{1, 1, 8},
                                   {6, 2, 64},
                                   {7, 1, 80},
                                   {4, 1, 128},
                                   {3, 1, 120},
                                   {2, 1, 256}},
                                  {127, 5, 0, 300, 128},
                                  {2, 0, -1, 3, 4},
                                  512);
}

// While a page is computed, the next page is loaded and may be shorter.
TYPED_TEST(CudaAttentionOnHostTest, ABlockTakesPagesOneAfterTheOther) {
  fake::SetTraits({.multiprocessors = 1});
  ExpectAttentionOfAll<TypeParam>(
      {{6, 2, 64}, {4, 1, 128}, {3, 1, 120}, {8, 1, 256}},
      {300, 5, 0, 127, 190},
      {2, 0, -1, 3, 4},
      512);
  fake::SetTraits({});
}

// There are more splits than are combined at a time.
TYPED_TEST(CudaAttentionOnHostTest, ManySplitsAreCombinedInTheirOrder) {
  ExpectAttentionOfAll<TypeParam>(
      {{2, 1, 8}, {8, 1, 8}}, {73 * kPageTokens + 1}, {0}, 80 * kPageTokens);
}

TYPED_TEST(CudaAttentionOnHostTest, TheLongestSequenceIsAttendedTo) {
  constexpr int64_t kMaxTokens = int64_t{kMaxPages} * kPageTokens;
  double worst = 0.0;
  ExpectAttention<TypeParam>(
      {1, 1, 8}, {kMaxTokens - 1}, {0}, kMaxTokens, &worst);
  std::cout << "worst error " << worst << " of the bound\n";
}

// There are more rows than lanes in a warp, and more pages than blocks, so each
// block takes pages of several rows.
TYPED_TEST(CudaAttentionOnHostTest, RowsOfAnyLengthsAreDealtToAFewBlocks) {
  std::vector<int32_t> positions;
  std::vector<int32_t> slots;
  for (int32_t row = 0; row < 70; ++row) {
    positions.push_back(row * 37 % 300);
    slots.push_back(row % 5 == 3 ? -1 : 69 - row);
  }
  positions[2] = 12 * kPageTokens;
  double worst = 0.0;
  for (const int multiprocessors : {1, 7}) {
    fake::SetTraits({.multiprocessors = multiprocessors});
    fake::TakeLaunches();
    ExpectAttention<TypeParam>(
        {4, 2, 8}, positions, slots, 512 * kPageTokens, &worst);
    // The number of blocks depends on neither the rows' lengths nor the unused
    // rows.
    EXPECT_LE(fake::TakeLaunches().blocks, 2 * multiprocessors);
  }
  fake::SetTraits({});
  std::cout << "worst error " << worst << " of the bound\n";
}

// The block of a whole split adds its pages up; if several blocks share a
// split, the last block of the row adds them up.
TYPED_TEST(CudaAttentionOnHostTest, BitsDependNeitherOnBlocksNorOnNeighbours) {
  const Geometry g{4, 2, 16};
  const auto bits_of = [&](int multiprocessors,
                           const std::vector<int32_t>& positions,
                           const std::vector<int32_t>& slots) {
    fake::SetTraits({.multiprocessors = multiprocessors});
    const Launched<TypeParam> launched(g, positions, slots, 128 * kPageTokens);
    fake::SetTraits({});
    std::vector<decltype(BitsOf(TypeParam{}))> bits;
    const std::vector<TypeParam> found = launched.out.Read();
    for (int64_t i = 0; i < launched.width; ++i)
      bits.push_back(BitsOf(found[i]));
    return bits;
  };
  constexpr int32_t kLast = 27 * kPageTokens + 5;
  const auto alone = bits_of(1, {kLast}, {0});
  for (const int multiprocessors : {2, 3, 5, 9, 40}) {
    EXPECT_EQ(bits_of(multiprocessors, {kLast}, {0}), alone)
        << multiprocessors << " multiprocessors";
  }
  EXPECT_EQ(bits_of(2, {kLast, 300, 5000, 64}, {0, 2, -1, 1, 3}), alone);
}

TYPED_TEST(CudaAttentionOnHostTest, OneSumIsWrittenForTheEightPagesOfASplit) {
  constexpr int64_t kPages = 64;
  const Geometry g{4, 1, 128};
  const auto written = [&](int multiprocessors) {
    fake::SetTraits({.multiprocessors = multiprocessors});
    const Launched<TypeParam> launched(
        g, {kPages * kPageTokens - 1}, {0}, kPages * kPageTokens);
    fake::SetTraits({});
    return static_cast<int64_t>(launched.traffic.bytes_written);
  };
  const int64_t sum = g.heads * (2 + g.head_dim) * sizeof(float);
  const int64_t rest =
      g.heads * g.head_dim * sizeof(TypeParam) + 64;  // the result, the counter
  // Two blocks have 32 pages each, so no split is shared.
  EXPECT_LE(written(1), kPages / kSplitPages * sum + rest);
  // Each of 32 blocks has two pages, so every split is shared.
  EXPECT_GE(written(16), kPages * sum);
}

TEST(CudaFloat8AttentionOnHostTest, IsAttentionOverTheRoundedNumbersBitByBit) {
  const std::vector<int32_t> positions = {127, 5, 0, 300, 1200};
  const std::vector<int32_t> slots = {2, 0, -1, 3, 4};
  constexpr int64_t kTokens = 11 * kPageTokens;
  for (const Geometry& g : {Geometry{6, 2, 64},
                            Geometry{7, 1, 80},
                            Geometry{4, 1, 128},
                            Geometry{2, 1, 256},
                            Geometry{1, 1, 16}}) {
    for (const int multiprocessors : {1, 4}) {
      fake::SetTraits({.multiprocessors = multiprocessors});
      const Launched<BFloat16, Float8> in_float8(g, positions, slots, kTokens);
      const Launched<BFloat16> rounded(
          g, positions, slots, kTokens, Kept::kRoundedToFloat8);
      fake::SetTraits({});
      const std::vector<BFloat16> found = in_float8.out.Read();
      const std::vector<BFloat16> expected = rounded.out.Read();
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(in_float8.out.IsWritten(static_cast<int64_t>(i)),
                  rounded.out.IsWritten(static_cast<int64_t>(i)));
        ASSERT_EQ(BitsOf(found[i]), BitsOf(expected[i]))
            << "head dimension " << g.head_dim << ", number " << i;
      }
      // Keys and values are read once: a number is one byte instead of two,
      // and a head of a token has a scale of two bytes.
      uint64_t tokens = 0;
      for (const int32_t slot : slots) {
        if (slot >= 0) tokens += static_cast<uint64_t>(positions[slot]) + 1;
      }
      const uint64_t less =
          rounded.traffic.bytes_read - in_float8.traffic.bytes_read;
      const uint64_t of_keys = tokens * 2 * g.kv_heads * (g.head_dim - 2);
      EXPECT_GE(less, of_keys) << "head dimension " << g.head_dim;
      // The rest is partial sums: more of the narrower numbers' blocks fit a
      // multiprocessor, so that they share other splits.
      EXPECT_LE(less, of_keys + of_keys / 50)
          << "head dimension " << g.head_dim;
    }
  }
}

TEST(CudaFloat8AttentionOnHostTest, IsRefusedWhereItsPagesCannotBe) {
  DecodeAttentionArgs args{.cache = {.is_float8 = true},
                           .heads = 1,
                           .kv_heads = 1,
                           .head_dim = 128,
                           .max_tokens = 128};
  EXPECT_NE(DapdCudaDecodeAttention(&args, CudaNumber::kFloat32, nullptr), 0);
  args.head_dim = 120;
  EXPECT_NE(DapdCudaDecodeAttention(&args, CudaNumber::kBFloat16, nullptr), 0);
  EXPECT_EQ(fake::TakeReport(), "");
}

TEST(CudaLongAttentionOnHostTest, TheLongestQwen3ContextAgreesWithFloat64) {
  constexpr int64_t kTokens = 40960;
  double worst = 0.0;
  fake::SetTraits({.multiprocessors = 7});
  ExpectAttention<BFloat16>(
      {4, 1, 32}, {1500, kTokens - 1}, {1, 0}, kTokens, &worst);
  fake::SetTraits({});
  std::cout << "worst error " << worst << " of the bound\n";
}

TYPED_TEST(CudaAttentionOnHostTest, ALongerSequenceIsRefused) {
  DeviceBuffer<int32_t> nobody("slot_of_row", {-1});
  nobody.MarkConstant();
  DecodeAttentionArgs args{.rows = {1, nobody.data(), nullptr},
                           .heads = 1,
                           .kv_heads = 1,
                           .head_dim = 8,
                           .max_tokens = int64_t{kMaxPages} * kPageTokens};
  ASSERT_KERNEL_RUNS(
      DapdCudaDecodeAttention(&args, NumberOf<TypeParam>(), nullptr));
  ++args.max_tokens;
  EXPECT_NE(DapdCudaDecodeAttention(&args, NumberOf<TypeParam>(), nullptr), 0);
  EXPECT_EQ(fake::TakeReport(), "");
}

TYPED_TEST(CudaAttentionOnHostTest, AGeometryThatItDoesNotTakeIsRefused) {
  const DecodeAttentionArgs args{
      .heads = 9, .kv_heads = 2, .head_dim = 64, .max_tokens = 128};
  EXPECT_NE(DapdCudaDecodeAttention(&args, NumberOf<TypeParam>(), nullptr), 0);
  EXPECT_EQ(fake::TakeReport(), "");
}

}  // namespace
}  // namespace dapd
