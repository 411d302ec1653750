#include "common/model/variable_length_attention.h"

#include <algorithm>

#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

// Where no sequence has more than one query, FlashAttention splits the keys by
// the number of sequences, so that bits would depend on who else is there.
constexpr int64_t kLeastLongest = 2;

// CausalFromBottomRight of LibTorch's CustomMaskType: the last query looks at
// the last key.
constexpr int64_t kFromBottomRight = 2;

bool IsWide(const at::Tensor& q) { return q.scalar_type() == at::kFloat; }

int64_t Longest(const std::vector<int64_t>& offsets) {
  int64_t longest = kLeastLongest;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    longest = std::max(longest, offsets[i + 1] - offsets[i]);
  }
  return longest;
}

// The longest as the memory-efficient backward pass takes it, which refuses one
// of more rows than there are (kLeastLongest).
int64_t AtMostRowsOf(const at::Tensor& rows, int64_t longest) {
  return std::min(longest, rows.size(0));
}

// [M, K, D] -> [1, M, H, D].
at::Tensor ForEachHead(const at::Tensor& rows, int64_t heads) {
  return rows.repeat_interleave(heads / rows.size(1), 1).unsqueeze(0);
}

// The gradient of `rows` from that of ForEachHead(rows).
at::Tensor SumOverGroups(const at::Tensor& grad, const at::Tensor& rows) {
  const int64_t kv_heads = rows.size(1);
  return grad.squeeze(0)
      .unflatten(1, {kv_heads, grad.size(2) / kv_heads})
      .sum(2);
}

}  // namespace

VariableLengthAttention::VariableLengthAttention(
    const std::vector<int64_t>& offsets, at::Device device)
    : q_offsets_(ToDevice(at::tensor(offsets, at::kInt), device)),
      k_offsets_(q_offsets_),
      longest_q_(Longest(offsets)),
      longest_k_(longest_q_) {}

VariableLengthAttention::VariableLengthAttention(
    const std::vector<int64_t>& q_offsets,
    const std::vector<RowRange>& keys,
    at::Device device)
    : longest_q_(Longest(q_offsets)), longest_k_(kLeastLongest) {
  TORCH_CHECK(keys.size() + 1 == q_offsets.size(),
              "[variable_length_attention] keys of ",
              keys.size(),
              " sequences, queries of ",
              q_offsets.size() - 1);
  // One copy for all three.
  std::vector<int64_t> all = q_offsets;
  for (const RowRange& range : keys) {
    all.push_back(range.begin);
    longest_k_ = std::max(longest_k_, range.tokens);
  }
  all.push_back(0);  // where a next one would begin: not read beside k_tokens_
  for (const RowRange& range : keys) all.push_back(range.tokens);
  const auto count = static_cast<int64_t>(keys.size());
  const at::Tensor copied = ToDevice(at::tensor(all, at::kInt), device);
  q_offsets_ = copied.narrow(0, 0, count + 1);
  k_offsets_ = copied.narrow(0, count + 1, count + 1);
  k_tokens_ = copied.narrow(0, 2 * count + 2, count);
}

at::Tensor VariableLengthAttention::Forward(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    AttentionStatistics* statistics) const {
  if (IsWide(q)) {
    const auto [out, logsumexp, seed, offset, unused_q, unused_k] =
        at::_efficient_attention_forward(q.unsqueeze(0),
                                         ForEachHead(k, q.size(1)),
                                         ForEachHead(v, q.size(1)),
                                         /*bias=*/{},
                                         q_offsets_,
                                         k_offsets_,
                                         longest_q_,
                                         longest_k_,
                                         /*dropout_p=*/0.0,
                                         kFromBottomRight,
                                         /*compute_log_sumexp=*/true,
                                         /*scale=*/std::nullopt,
                                         k_tokens_);
    if (statistics != nullptr) statistics->tensors = {logsumexp, seed, offset};
    return out.squeeze(0);
  }
  const auto [out, logsumexp, state, unused, mask] =
      at::_flash_attention_forward(q,
                                   k,
                                   v,
                                   q_offsets_,
                                   k_offsets_,
                                   longest_q_,
                                   longest_k_,
                                   /*dropout_p=*/0.0,
                                   /*is_causal=*/true,
                                   /*return_debug_mask=*/false,
                                   /*scale=*/std::nullopt,
                                   /*window_size_left=*/std::nullopt,
                                   /*window_size_right=*/std::nullopt,
                                   k_tokens_);
  if (statistics != nullptr) statistics->tensors = {logsumexp, state, unused};
  return out;
}

AttentionGradients VariableLengthAttention::Backward(
    const at::Tensor& grad_out,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& out,
    const AttentionStatistics& statistics) const {
  TORCH_CHECK(!k_tokens_.has_value(),
              "[variable_length_attention] no gradient where keys are shared");
  const at::Tensor& logsumexp = statistics.tensors[0];
  if (IsWide(q)) {
    const auto [grad_q, grad_k, grad_v, grad_bias] =
        at::_efficient_attention_backward(grad_out.unsqueeze(0),
                                          q.unsqueeze(0),
                                          ForEachHead(k, q.size(1)),
                                          ForEachHead(v, q.size(1)),
                                          /*bias=*/{},
                                          out.unsqueeze(0),
                                          q_offsets_,
                                          k_offsets_,
                                          AtMostRowsOf(q, longest_q_),
                                          AtMostRowsOf(k, longest_k_),
                                          logsumexp,
                                          /*dropout_p=*/0.0,
                                          statistics.tensors[1],
                                          statistics.tensors[2],
                                          kFromBottomRight,
                                          /*bias_requires_grad=*/false);
    return {
        grad_q.squeeze(0), SumOverGroups(grad_k, k), SumOverGroups(grad_v, v)};
  }
  const auto [grad_q, grad_k, grad_v] =
      at::_flash_attention_backward(grad_out,
                                    q,
                                    k,
                                    v,
                                    out,
                                    logsumexp,
                                    q_offsets_,
                                    k_offsets_,
                                    longest_q_,
                                    longest_k_,
                                    /*dropout_p=*/0.0,
                                    /*is_causal=*/true,
                                    statistics.tensors[1],
                                    statistics.tensors[2]);
  return {grad_q, grad_k, grad_v};
}

}  // namespace dapd
