#include "common/model/flash_attention_3_check.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/kernels/flash_attention_3_memory.h"
#include "common/model/flash_attention_3.h"
#include "common/model/variable_length_attention.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// A sequence of less than a tile of queries, an empty one, one of several
// tiles, and a single token.
const std::vector<int64_t> kOffsets = {0, 30, 30, 330, 331};
constexpr int64_t kRows = 331;
constexpr int64_t kLongest = 300;
constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;

// Both sides round inputs alike. The results are rounded to 8 bits, and so are
// the weights that are multiplied; a wrong stride or offset gives errors as
// large as the numbers.
constexpr double kMostError = 0.05;

// Returns numbers between -1 and 1 without a generator: a run's random numbers
// must not depend on this check.
at::Tensor Numbers(int64_t heads, int64_t head_dim, double step) {
  const at::Tensor numbers = at::arange(kRows * heads * head_dim, at::kDouble)
                                 .mul(step)
                                 .sin()
                                 .view({kRows, heads, head_dim});
  return numbers.to(at::kBFloat16).to(at::kCUDA);
}

// Returns the largest difference, in parts of the largest number.
double Difference(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor known = expected.cpu().to(at::kDouble);
  const at::Tensor difference = found.cpu().to(at::kDouble).sub(known).abs();
  // A difference that is no number counts as large.
  return at::nan_to_num(difference, 1e9).max().item<double>() /
         known.abs().max().item<double>();
}

std::string FaultOfWidth(const FlashAttention3& kernels, int64_t head_dim) {
  // q, k and v are parts of one projection, as in a layer.
  const at::Tensor qkv = Numbers(kHeads + 2 * kKvHeads, head_dim, 0.7);
  const at::Tensor q = qkv.narrow(1, 0, kHeads);
  const at::Tensor k = qkv.narrow(1, kHeads, kKvHeads);
  const at::Tensor v = qkv.narrow(1, kHeads + kKvHeads, kKvHeads);
  const at::Tensor grad = Numbers(kHeads, head_dim, 1.3);
  const at::Tensor offsets =
      at::tensor(kOffsets, at::kLong).to(at::kInt).to(at::kCUDA);
  const AttentionLaunch launch = {.q_offsets = offsets,
                                  .k_offsets = offsets,
                                  .longest_q = kLongest,
                                  .longest_k = kLongest};
  at::Tensor logsumexp;
  const at::Tensor out =
      FlashAttention3Forward(kernels, launch, q, k, v, &logsumexp);
  const AttentionGradients gradients =
      FlashAttention3Backward(kernels, launch, grad, q, k, v, out, logsumexp);

  const VariableLengthAttention libtorch(kOffsets, at::kCUDA);
  const at::Tensor wide_q = q.to(at::kFloat);
  const at::Tensor wide_k = k.to(at::kFloat);
  const at::Tensor wide_v = v.to(at::kFloat);
  AttentionStatistics statistics;
  const at::Tensor expected =
      libtorch.Forward(wide_q, wide_k, wide_v, &statistics);
  const AttentionGradients known = libtorch.Backward(
      grad.to(at::kFloat), wide_q, wide_k, wide_v, expected, statistics);
  const std::vector<std::pair<const char*, double>> errors = {
      {"the output", Difference(out, expected)},
      {"the gradient of the queries", Difference(gradients.q, known.q)},
      {"the gradient of the keys", Difference(gradients.k, known.k)},
      {"the gradient of the values", Difference(gradients.v, known.v)}};
  for (const auto& [what, error] : errors) {
    if (error <= kMostError) continue;
    return absl::StrCat("with heads of ",
                        head_dim,
                        " numbers ",
                        what,
                        " differs from LibTorch's by ",
                        error,
                        " of the largest number");
  }
  return "";
}

}  // namespace

std::string FaultOfFlashAttention3(const FlashAttention3& kernels) {
  const at::NoGradGuard no_grad;
  const bool is_deterministic = at::globalContext().deterministicAlgorithms();
  try {
    for (const int64_t head_dim : {64, 128, 256}) {
      if (!HasFlashAttention3(head_dim, is_deterministic)) continue;
      std::string fault = FaultOfWidth(kernels, head_dim);
      if (!fault.empty()) return fault;
    }
  } catch (const c10::Error& error) {
    if (IsOutOfMemory(error)) throw;
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace dapd
