// Compares attention over sequences of any lengths on a GPU, forward and
// backward, with its definition in float64. Skips itself without a GPU;
// dapd_torch_device_test runs it on a device that the host simulates.

#include <cmath>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/flash_attention_3.h"
#include "common/model/variable_length_attention.h"
#include "tests/fakes/cuda_precisions.h"
#include "tests/fakes/deterministic_algorithms.h"
#include "tests/fakes/same_bits.h"

namespace dapd {
namespace {

struct Heads {
  int64_t query = 0;
  int64_t kv = 0;
  int64_t dim = 0;
};
// The cases have Qwen3-4B's heads, SmolLM2's heads, keys that every query head
// reads, Gemma's heads, and heads that share nothing. On sm_90 in bfloat16
// FlashAttention-3 computes all but the third.
constexpr Heads kHeads[] = {
    {32, 8, 128}, {9, 3, 64}, {16, 1, 80}, {8, 4, 256}, {4, 4, 128}};

std::string NameOf(const Heads& heads) {
  return std::to_string(heads.query) + " heads over " +
         std::to_string(heads.kv) + " of " + std::to_string(heads.dim);
}

// Computes softmax(q k^T / sqrt(D)) v; the queries are the last tokens of the
// keys.
at::Tensor Attention(const at::Tensor& q,
                     const at::Tensor& k,
                     const at::Tensor& v) {
  const int64_t group = q.size(1) / k.size(1);
  const auto by_head = [&](const at::Tensor& rows) {
    return rows.repeat_interleave(group, 1).transpose(0, 1);
  };
  const at::Tensor later =
      at::ones({q.size(0), k.size(0)}, q.options().dtype(at::kBool))
          .tril(k.size(0) - q.size(0))
          .logical_not();
  const at::Tensor scores =
      (q.transpose(0, 1).bmm(by_head(k).transpose(1, 2)) /
       std::sqrt(static_cast<double>(q.size(2))))
          .masked_fill(later, -std::numeric_limits<double>::infinity());
  return at::softmax(scores, -1).bmm(by_head(v)).transpose(0, 1);
}

class CudaAttentionParityTest : public CudaPrecisionTest {
 protected:
  // Returns numbers that the GPU's type holds exactly, in float64.
  static at::Tensor Random(at::IntArrayRef shape) {
    return at::randn(shape).to(GetParam()).to(at::kDouble);
  }
  static at::Tensor OnGpu(const at::Tensor& tensor) {
    return tensor.detach().to(at::kCUDA, GetParam());
  }

  // The error is of all numbers together. Probabilities, results and the values
  // that the backward pass keeps are rounded once each; in float32 the error
  // comes from sums.
  static void ExpectClose(const std::string& what,
                          const at::Tensor& ours,
                          const at::Tensor& expected) {
    const double error =
        ((ours.cpu().to(at::kDouble) - expected).norm() / expected.norm())
            .item<double>();
    std::cout << what << ": error " << error << "\n";
    EXPECT_LT(error, GetParam() == at::kFloat ? 1e-5 : 1e-2) << what;
  }
};

TEST_P(CudaAttentionParityTest, SequencesSideBySideAndTheirGradients) {
  // The sequences have no, one and several blocks of queries and keys.
  const std::vector<int64_t> offsets = {0, 1, 64, 192, 321, 1021};
  const int64_t rows = offsets.back();
  for (const Heads& heads : kHeads) {
    const std::string name = NameOf(heads);
    at::Tensor q = Random({rows, heads.query, heads.dim});
    at::Tensor k = Random({rows, heads.kv, heads.dim});
    at::Tensor v = Random({rows, heads.kv, heads.dim});
    const at::Tensor grad_out = Random({rows, heads.query, heads.dim});
    for (at::Tensor* tensor : {&q, &k, &v}) tensor->requires_grad_(true);
    std::vector<at::Tensor> outputs;
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      const auto own = [&](const at::Tensor& tensor) {
        return tensor.slice(0, offsets[i], offsets[i + 1]);
      };
      outputs.push_back(Attention(own(q), own(k), own(v)));
    }
    const at::Tensor expected = at::cat(outputs);
    expected.backward(grad_out);

    const at::NoGradGuard no_grad;
    if (FlashAttention3For(OnGpu(q), OnGpu(k), OnGpu(v)) != nullptr) {
      std::cout << name << " by FlashAttention-3\n";
    }
    const VariableLengthAttention attention(offsets, at::kCUDA);
    AttentionStatistics statistics;
    const at::Tensor out =
        attention.Forward(OnGpu(q), OnGpu(k), OnGpu(v), &statistics);
    const AttentionGradients gradients = attention.Backward(
        OnGpu(grad_out), OnGpu(q), OnGpu(k), OnGpu(v), out, statistics);
    ExpectClose(name + ", value", out, expected.detach());
    ExpectClose(name + ", gradient of q", gradients.q, q.grad());
    ExpectClose(name + ", gradient of k", gradients.k, k.grad());
    ExpectClose(name + ", gradient of v", gradients.v, v.grad());

    // LibTorch's autograd uses LibTorch's implementations on every GPU.
    const at::AutoGradMode with_grad(true);
    const at::Tensor own_q = OnGpu(q).requires_grad_(true);
    const at::Tensor own_k = OnGpu(k).requires_grad_(true);
    const at::Tensor own_v = OnGpu(v).requires_grad_(true);
    const at::Tensor by_libtorch =
        attention.Forward(own_q, own_k, own_v, /*statistics=*/nullptr);
    by_libtorch.backward(OnGpu(grad_out));
    const std::string own = name + " by LibTorch";
    ExpectClose(own + ", value", by_libtorch.detach(), expected.detach());
    ExpectClose(own + ", gradient of q", own_q.grad(), q.grad());
    ExpectClose(own + ", gradient of k", own_k.grad(), k.grad());
    ExpectClose(own + ", gradient of v", own_v.grad(), v.grad());
  }
}

// Sequences of several blocks, whose gradients many blocks add to.
TEST_P(CudaAttentionParityTest, DeterministicGradientsHaveTheSameBitsEachTime) {
  const at::NoGradGuard no_grad;
  const DeterministicAlgorithms deterministic;
  const std::vector<int64_t> offsets = {0, 300, 301, 700};
  const int64_t rows = offsets.back();
  const VariableLengthAttention attention(offsets, at::kCUDA);
  for (const Heads& heads : kHeads) {
    const at::Tensor q = OnGpu(Random({rows, heads.query, heads.dim}));
    const at::Tensor k = OnGpu(Random({rows, heads.kv, heads.dim}));
    const at::Tensor v = OnGpu(Random({rows, heads.kv, heads.dim}));
    const at::Tensor grad_out = OnGpu(Random({rows, heads.query, heads.dim}));
    std::vector<AttentionGradients> found;
    for (int i = 0; i < 2; ++i) {
      AttentionStatistics statistics;
      const at::Tensor out = attention.Forward(q, k, v, &statistics);
      found.push_back(attention.Backward(grad_out, q, k, v, out, statistics));
      const auto same = [&](at::Tensor AttentionGradients::*part) {
        return SameBits((found[0].*part).cpu(), (found[i].*part).cpu());
      };
      EXPECT_TRUE(same(&AttentionGradients::q)) << NameOf(heads);
      EXPECT_TRUE(same(&AttentionGradients::k)) << NameOf(heads);
      EXPECT_TRUE(same(&AttentionGradients::v)) << NameOf(heads);
    }
  }
}

// In the smallest pass a row sees only itself, with a constant probability.
TEST_P(CudaAttentionParityTest, ARowByItself) {
  const at::NoGradGuard no_grad;
  for (const Heads& heads : kHeads) {
    const std::string name = NameOf(heads);
    const at::Tensor q = Random({1, heads.query, heads.dim});
    const at::Tensor k = Random({1, heads.kv, heads.dim});
    const at::Tensor v = Random({1, heads.kv, heads.dim});
    const at::Tensor grad_out = Random({1, heads.query, heads.dim});
    const VariableLengthAttention attention({0, 1}, at::kCUDA);
    AttentionStatistics statistics;
    const at::Tensor out =
        attention.Forward(OnGpu(q), OnGpu(k), OnGpu(v), &statistics);
    const AttentionGradients gradients = attention.Backward(
        OnGpu(grad_out), OnGpu(q), OnGpu(k), OnGpu(v), out, statistics);
    const int64_t group = heads.query / heads.kv;
    ExpectClose(name + ", value", out, v.repeat_interleave(group, 1));
    ExpectClose(name + ", gradient of v",
                gradients.v,
                grad_out.view({1, heads.kv, group, heads.dim}).sum(2));
    EXPECT_LT(gradients.q.abs().max().item<double>(), 1e-3) << name;
    EXPECT_LT(gradients.k.abs().max().item<double>(), 1e-3) << name;
  }
}

// Chunks and tails have such sequences: keys before the queries, rows that
// several sequences look at, and queries that nobody reads.
TEST_P(CudaAttentionParityTest, QueriesAreTheLastOfKeysThatTheyShare) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> offsets = {0, 40, 41, 58, 188, 444, 512};
  const std::vector<RowRange> keys = {
      {0, 300}, {0, 301}, {100, 217}, {317, 130}, {0, 700}, {0, 1}};
  const std::vector<size_t> read = {0, 1, 2, 3, 4};
  for (const Heads& heads : kHeads) {
    const at::Tensor q = Random({offsets.back(), heads.query, heads.dim});
    const at::Tensor k = Random({700, heads.kv, heads.dim});
    const at::Tensor v = Random({700, heads.kv, heads.dim});
    const at::Tensor out =
        VariableLengthAttention(offsets, keys, at::kCUDA)
            .Forward(OnGpu(q), OnGpu(k), OnGpu(v), /*statistics=*/nullptr)
            .cpu();
    for (const size_t i : read) {
      const auto& [begin, tokens] = keys[i];
      ExpectClose(NameOf(heads) + ", sequence " + std::to_string(i),
                  out.slice(0, offsets[i], offsets[i + 1]),
                  Attention(q.slice(0, offsets[i], offsets[i + 1]),
                            k.narrow(0, begin, tokens),
                            v.narrow(0, begin, tokens)));
      // A sequence alone gives the same bits.
      const at::Tensor alone =
          VariableLengthAttention(
              {0, offsets[i + 1] - offsets[i]}, {keys[i]}, at::kCUDA)
              .Forward(OnGpu(q.slice(0, offsets[i], offsets[i + 1])),
                       OnGpu(k),
                       OnGpu(v),
                       /*statistics=*/nullptr)
              .cpu();
      EXPECT_TRUE(SameBits(out.slice(0, offsets[i], offsets[i + 1]), alone))
          << "sequence " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions,
                         CudaAttentionParityTest,
                         CudaPrecisions(),
                         CudaPrecisionName);

}  // namespace
}  // namespace dapd
