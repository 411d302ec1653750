// Compares attention over sequences of any lengths by the CPU's kernels with
// its definition in float64. cuda_attention_parity_test.cc tests a GPU.
#include "common/model/variable_length_attention.h"

#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/same_bits.h"

namespace dapd {
namespace {

constexpr int64_t kQueryHeads = 6;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadDim = 16;

at::Tensor Random(int64_t rows, int64_t heads, at::ScalarType dtype) {
  return at::randn({rows, heads, kHeadDim}).to(dtype);
}

// Computes softmax(q k^T / sqrt(D)) v; the queries are the last tokens of the
// keys.
at::Tensor Definition(const at::Tensor& q,
                      const at::Tensor& k,
                      const at::Tensor& v) {
  const auto by_head = [&](const at::Tensor& rows) {
    return rows.to(at::kDouble)
        .repeat_interleave(q.size(1) / rows.size(1), 1)
        .transpose(0, 1);
  };
  const at::Tensor later = at::ones({q.size(0), k.size(0)}, at::kBool)
                               .tril(k.size(0) - q.size(0))
                               .logical_not();
  const at::Tensor scores =
      (by_head(q).bmm(by_head(k).transpose(1, 2)) /
       std::sqrt(static_cast<double>(q.size(2))))
          .masked_fill(later, -std::numeric_limits<double>::infinity());
  return at::softmax(scores, -1).bmm(by_head(v)).transpose(0, 1);
}

class VariableLengthAttentionTest
    : public testing::TestWithParam<at::ScalarType> {};

// Chunks and tails have keys before the queries, and rows that several
// sequences look at. The empty sequence means that no rows are left over.
TEST_P(VariableLengthAttentionTest, QueriesAreTheLastOfKeysThatTheyShare) {
  at::manual_seed(7);
  const std::vector<int64_t> offsets = {0, 40, 41, 58, 188, 188};
  const std::vector<RowRange> keys = {
      {0, 300}, {0, 301}, {100, 217}, {317, 130}, {0, 1}};
  const at::Tensor q = Random(offsets.back(), kQueryHeads, GetParam());
  const at::Tensor k = Random(450, kKvHeads, GetParam());
  const at::Tensor v = Random(450, kKvHeads, GetParam());
  const at::Tensor out = VariableLengthAttention(offsets, keys, at::kCPU)
                             .Forward(q, k, v, /*statistics=*/nullptr);
  for (size_t i = 0; i + 1 < keys.size(); ++i) {
    const auto& [begin, tokens] = keys[i];
    const at::Tensor own = q.slice(0, offsets[i], offsets[i + 1]);
    const at::Tensor result = out.slice(0, offsets[i], offsets[i + 1]);
    const at::Tensor expected =
        Definition(own, k.narrow(0, begin, tokens), v.narrow(0, begin, tokens));
    const double error =
        ((result.to(at::kDouble) - expected).norm() / expected.norm())
            .item<double>();
    std::cout << "sequence " << i << ": error " << error << "\n";
    EXPECT_LT(error, GetParam() == at::kFloat ? 1e-6 : 1e-2);
    const at::Tensor alone =
        VariableLengthAttention({0, own.size(0)}, {keys[i]}, at::kCPU)
            .Forward(own, k, v, /*statistics=*/nullptr);
    EXPECT_TRUE(SameBits(result, alone)) << "sequence " << i;
  }
}

// A chunk's keys lie head by head in memory, the keys of a pack token by token.
TEST_P(VariableLengthAttentionTest, TheOrderOfKeysInMemoryChangesNoBit) {
  at::manual_seed(8);
  const at::Tensor q = Random(70, kQueryHeads, GetParam());
  const at::Tensor k = Random(70, kKvHeads, GetParam());
  const at::Tensor v = Random(70, kKvHeads, GetParam());
  const auto by_head = [](const at::Tensor& rows) {
    return rows.transpose(0, 1).contiguous().transpose(0, 1);
  };
  const VariableLengthAttention attention({0, 30, 70}, at::kCPU);
  AttentionStatistics statistics;
  EXPECT_TRUE(SameBits(attention.Forward(q, k, v, &statistics),
                       attention.Forward(q, by_head(k), by_head(v), nullptr)));
  EXPECT_EQ(statistics.tensors.at(0).sizes(),
            at::IntArrayRef({70, kQueryHeads}));
}

TEST_P(VariableLengthAttentionTest, SharedKeysHaveNoGradient) {
  const at::Tensor q = Random(4, kQueryHeads, GetParam());
  const at::Tensor k = Random(6, kKvHeads, GetParam());
  const VariableLengthAttention attention({0, 4}, {{0, 6}}, at::kCPU);
  AttentionStatistics statistics;
  const at::Tensor out = attention.Forward(q, k, k, &statistics);
  EXPECT_THROW(attention.Backward(out, q, k, k, out, statistics), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(Precisions,
                         VariableLengthAttentionTest,
                         testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32"
                                                           : "bfloat16";
                         });

TEST(RefusedAttentionTest, MoreQueriesThanKeysAreRefused) {
  EXPECT_THROW(VariableLengthAttention({0, 4}, {{0, 3}}, at::kCPU), c10::Error);
}

TEST(RefusedAttentionTest, OtherDtypesAreRefused) {
  const at::Tensor q = Random(4, kQueryHeads, at::kDouble);
  const at::Tensor k = Random(4, kKvHeads, at::kDouble);
  EXPECT_THROW(VariableLengthAttention({0, 4}, at::kCPU)
                   .Forward(q, k, k, /*statistics=*/nullptr),
               c10::Error);
}

}  // namespace
}  // namespace dapd
