// Computes attention of the simulated device from its definition, after a check
// of the conditions that LibTorch's CUDA kernels have for their arguments.

#include "tests/fakes/torch_device/device_attention.h"

#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/fakes/torch_device/device_memory.h"
#include "tests/fakes/torch_device/host_operations.h"

namespace dapd {
namespace {

std::vector<int32_t> Offsets(const std::optional<at::Tensor>& tensor) {
  TORCH_CHECK(tensor.has_value() && tensor->is_cuda() &&
                  tensor->scalar_type() == at::kInt && tensor->dim() == 1 &&
                  tensor->is_contiguous(),
              "[torch_device] offsets are int32 on the device, contiguous");
  const at::Tensor host = OnHost(*tensor);
  const int32_t* data = host.const_data_ptr<int32_t>();
  return {data, data + host.numel()};
}

// Returns the queries and the keys of each sequence.
AttendedRanges SequencesOf(const std::optional<at::Tensor>& q_offsets,
                           const std::optional<at::Tensor>& k_offsets,
                           const std::optional<at::Tensor>& k_used,
                           int64_t max_q,
                           int64_t max_k,
                           int64_t num_q,
                           int64_t num_k) {
  const std::vector<int32_t> q = Offsets(q_offsets);
  const std::vector<int32_t> k = Offsets(k_offsets);
  TORCH_CHECK(q.size() == k.size() && q.size() >= 2,
              "[torch_device] as many offsets of queries as of keys");
  const std::vector<int32_t> used =
      k_used.has_value() ? Offsets(k_used) : std::vector<int32_t>();
  AttendedRanges sequences;
  for (size_t i = 0; i + 1 < q.size(); ++i) {
    const RowRange queries{q[i], q[i + 1] - q[i]};
    const RowRange keys{k[i], used.empty() ? k[i + 1] - k[i] : used.at(i)};
    TORCH_CHECK(queries.begin >= 0 && queries.tokens >= 0 &&
                    queries.begin + queries.tokens <= num_q &&
                    keys.begin >= 0 && keys.tokens >= 0 &&
                    keys.begin + keys.tokens <= num_k,
                "[torch_device] a sequence lies outside of its rows");
    TORCH_CHECK(queries.tokens <= max_q && keys.tokens <= max_k,
                "[torch_device] a sequence is longer than the longest");
    sequences.emplace_back(queries, keys);
  }
  return sequences;
}

void CheckHeads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  for (const at::Tensor* each : {&q, &k, &v}) {
    TORCH_CHECK(each->is_cuda() && each->stride(-1) == 1 &&
                    each->scalar_type() == q.scalar_type() &&
                    each->size(-1) == q.size(-1),
                "[torch_device] heads on the device, contiguous, one dtype");
  }
  TORCH_CHECK(k.sizes() == v.sizes() && q.size(-2) % k.size(-2) == 0,
              "[torch_device] key-value heads divide the query heads");
}

// Returns the scaled scores [H, q, k] of a sequence, -inf where a query does
// not attend. The queries are the last of the keys. All arguments are float32,
// [tokens, heads, D].
at::Tensor Scores(const at::Tensor& q, const at::Tensor& k) {
  const int64_t behind = k.size(0) - q.size(0);
  const at::Tensor hidden =
      at::ones({q.size(0), k.size(0)}, at::kBool).triu(behind + 1);
  return (at::matmul(q.transpose(0, 1), k.permute({1, 2, 0})) /
          std::sqrt(static_cast<double>(q.size(2))))
      .masked_fill(hidden, -INFINITY);
}

// Returns the rows in `range` as float32 with `heads` heads.
at::Tensor Wide(const at::Tensor& rows, const RowRange& range, int64_t heads) {
  return rows.narrow(0, range.begin, range.tokens)
      .to(at::kFloat)
      .repeat_interleave(heads / rows.size(1), 1);
}

}  // namespace

void RunAttention(const at::Tensor& q,
                  const at::Tensor& k,
                  const at::Tensor& v,
                  const AttendedRanges& sequences,
                  at::Tensor out,
                  at::Tensor logsumexp) {
  const int64_t heads = q.size(1);
  for (const auto& [queries, keys] : sequences) {
    if (queries.tokens == 0) continue;
    const at::Tensor scores =
        Scores(Wide(q, queries, heads), Wide(k, keys, heads));
    // A row that attends to nothing gives zeros.
    const at::Tensor weights = at::nan_to_num(at::softmax(scores, -1), 0.0);
    out.narrow(0, queries.begin, queries.tokens)
        .copy_(at::matmul(weights, Wide(v, keys, heads).transpose(0, 1))
                   .transpose(0, 1));
    logsumexp.narrow(1, queries.begin, queries.tokens)
        .copy_(at::logsumexp(scores, -1));
  }
}

AttentionGradients RunAttentionBackward(const at::Tensor& grad,
                                        const at::Tensor& q,
                                        const at::Tensor& k,
                                        const at::Tensor& v,
                                        const at::Tensor& logsumexp,
                                        const AttendedRanges& sequences) {
  const int64_t heads = q.size(1);
  AttentionGradients found{
      at::zeros_like(q), at::zeros_like(k), at::zeros_like(v)};
  const auto add =
      [&](at::Tensor to, const RowRange& range, const at::Tensor& from) {
        // [H, tokens, D] -> [tokens, K, D], summed over a group.
        to.narrow(0, range.begin, range.tokens)
            .add_(from.transpose(0, 1)
                      .unflatten(1, {to.size(1), heads / to.size(1)})
                      .sum(2));
      };
  for (const auto& [queries, keys] : sequences) {
    if (queries.tokens == 0) continue;
    const at::Tensor wide_q = Wide(q, queries, heads);
    const at::Tensor wide_k = Wide(k, keys, heads);
    const at::Tensor wide_v = Wide(v, keys, heads);
    const at::Tensor g = Wide(grad, queries, heads).transpose(0, 1);
    const at::Tensor p = at::exp(
        Scores(wide_q, wide_k) -
        logsumexp.narrow(1, queries.begin, queries.tokens).unsqueeze(2));
    const at::Tensor dp = at::matmul(g, wide_v.permute({1, 2, 0}));
    const at::Tensor ds = p * (dp - (p * dp).sum(-1, true)) /
                          std::sqrt(static_cast<double>(q.size(2)));
    add(found.q, queries, at::matmul(ds, wide_k.transpose(0, 1)));
    add(found.k, keys, at::matmul(ds.transpose(1, 2), wide_q.transpose(0, 1)));
    add(found.v, keys, at::matmul(p.transpose(1, 2), g));
  }
  return found;
}

namespace {

// Returns rng_state and an empty tensor.
std::pair<at::Tensor, at::Tensor> RandomState() {
  const auto options = at::TensorOptions(at::kLong).device(TheDevice());
  return {at::empty({2}, options), at::empty({}, options)};
}

void CheckFlash(const at::Tensor& q) {
  TORCH_CHECK(q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf,
              "[torch_device] flash attention computes in half precision only");
  TORCH_CHECK(q.size(2) % 8 == 0 && q.size(2) <= 256,
              "[torch_device] head dimensions up to 256, multiples of 8");
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
FlashForward(const at::Tensor& q,
             const at::Tensor& k,
             const at::Tensor& v,
             const std::optional<at::Tensor>& q_offsets,
             const std::optional<at::Tensor>& k_offsets,
             int64_t max_q,
             int64_t max_k,
             double dropout,
             bool is_causal,
             bool /*return_debug_mask*/,
             std::optional<double> /*scale*/,
             std::optional<int64_t> /*window_size_left*/,
             std::optional<int64_t> /*window_size_right*/,
             const std::optional<at::Tensor>& k_used,
             const std::optional<at::Tensor>& /*alibi_slopes*/) {
  CheckFlash(q);
  CheckHeads(q, k, v);
  TORCH_CHECK(dropout == 0.0 && is_causal, "[torch_device] not simulated");
  // With one query, the kernel splits the keys by the size of the batch.
  TORCH_CHECK(max_q > 1, "[torch_device] bits that depend on the batch");
  CountLaunch("aten::_flash_attention_forward");
  at::Tensor out = at::empty_like(q);
  at::Tensor logsumexp =
      at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  RunAttention(
      OnHost(q),
      OnHost(k),
      OnHost(v),
      SequencesOf(
          q_offsets, k_offsets, k_used, max_q, max_k, q.size(0), k.size(0)),
      OnHost(out),
      OnHost(logsumexp));
  const auto [state, unused] = RandomState();
  return {out, logsumexp, state, unused, at::empty({0}, q.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(
    const at::Tensor& grad,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& /*out*/,
    const at::Tensor& logsumexp,
    const at::Tensor& q_offsets,
    const at::Tensor& k_offsets,
    int64_t max_q,
    int64_t max_k,
    double /*dropout*/,
    bool is_causal,
    const at::Tensor& /*rng_state*/,
    const at::Tensor& /*unused*/,
    std::optional<double> /*scale*/,
    std::optional<int64_t> /*window_size_left*/,
    std::optional<int64_t> /*window_size_right*/) {
  CheckFlash(q);
  CheckHeads(q, k, v);
  TORCH_CHECK(is_causal && grad.stride(-1) == 1,
              "[torch_device] not simulated");
  CountLaunch("aten::_flash_attention_backward");
  const AttentionGradients found = RunAttentionBackward(
      OnHost(grad),
      OnHost(q),
      OnHost(k),
      OnHost(v),
      OnHost(logsumexp),
      SequencesOf(
          q_offsets, k_offsets, {}, max_q, max_k, q.size(0), k.size(0)));
  return {OnDevice(found.q), OnDevice(found.k), OnDevice(found.v)};
}

// This is CausalFromBottomRight of LibTorch's CustomMaskType.
constexpr int64_t kFromBottomRight = 2;

std::tuple<at::Tensor,
           at::Tensor,
           at::Tensor,
           at::Tensor,
           c10::SymInt,
           c10::SymInt>
EfficientForward(const at::Tensor& q,
                 const at::Tensor& k,
                 const at::Tensor& v,
                 const std::optional<at::Tensor>& bias,
                 const std::optional<at::Tensor>& q_offsets,
                 const std::optional<at::Tensor>& k_offsets,
                 std::optional<int64_t> max_q,
                 std::optional<int64_t> max_k,
                 double /*dropout*/,
                 int64_t mask_type,
                 bool /*compute_log_sumexp*/,
                 std::optional<double> /*scale*/,
                 const std::optional<at::Tensor>& k_used,
                 std::optional<int64_t> /*window_size*/) {
  CheckHeads(q, k, v);
  TORCH_CHECK(q.dim() == 4 && q.size(0) == 1 && k.size(0) == 1 &&
                  q.size(2) == k.size(2) && mask_type == kFromBottomRight &&
                  !bias.has_value(),
              "[torch_device] one batch, as many key-value heads as queries'");
  CountLaunch("aten::_efficient_attention_forward");
  at::Tensor out = at::empty_like(q);
  at::Tensor logsumexp =
      at::empty({q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
  RunAttention(OnHost(q).squeeze(0),
               OnHost(k).squeeze(0),
               OnHost(v).squeeze(0),
               SequencesOf(q_offsets,
                           k_offsets,
                           k_used,
                           max_q.value(),
                           max_k.value(),
                           q.size(1),
                           k.size(1)),
               OnHost(out).squeeze(0),
               OnHost(logsumexp));
  const auto [seed, offset] = RandomState();
  return {out, logsumexp, seed, offset, *max_q, *max_k};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> EfficientBackward(
    const at::Tensor& grad,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const std::optional<at::Tensor>& /*bias*/,
    const at::Tensor& /*out*/,
    const std::optional<at::Tensor>& q_offsets,
    const std::optional<at::Tensor>& k_offsets,
    int64_t max_q,
    int64_t max_k,
    const at::Tensor& logsumexp,
    double /*dropout*/,
    const at::Tensor& /*philox_seed*/,
    const at::Tensor& /*philox_offset*/,
    int64_t mask_type,
    bool /*bias_requires_grad*/,
    std::optional<double> /*scale*/,
    std::optional<int64_t> /*num_splits_key*/,
    std::optional<int64_t> /*window_size*/,
    bool /*shared_storage_dqdkdv*/) {
  CheckHeads(q, k, v);
  TORCH_CHECK(mask_type == kFromBottomRight, "[torch_device] not simulated");
  // LibTorch has this condition for the backward pass only.
  TORCH_CHECK(
      max_q <= q.size(1) && max_k <= k.size(1),
      "[torch_device] the longest sequence has more rows than there are");
  CountLaunch("aten::_efficient_attention_backward");
  const AttentionGradients found = RunAttentionBackward(
      OnHost(grad).squeeze(0),
      OnHost(q).squeeze(0),
      OnHost(k).squeeze(0),
      OnHost(v).squeeze(0),
      OnHost(logsumexp),
      SequencesOf(
          q_offsets, k_offsets, {}, max_q, max_k, q.size(1), k.size(1)));
  return {OnDevice(found.q.unsqueeze(0)),
          OnDevice(found.k.unsqueeze(0)),
          OnDevice(found.v.unsqueeze(0)),
          at::Tensor()};
}

}  // namespace
}  // namespace dapd

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_flash_attention_forward", &dapd::FlashForward);
  library.impl("_flash_attention_backward", &dapd::FlashBackward);
  library.impl("_efficient_attention_forward", &dapd::EfficientForward);
  library.impl("_efficient_attention_backward", &dapd::EfficientBackward);
}
