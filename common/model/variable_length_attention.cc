#include "common/model/variable_length_attention.h"

#include <algorithm>
#include <type_traits>

#include "common/kernels/causal_attention.h"
#include "common/model/cpu_kernels.h"
#include "common/model/flash_attention_3.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

// With one query in every sequence FlashAttention splits the keys by the number
// of sequences, so bits would depend on the other sequences.
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

// The memory-efficient backward pass refuses a longest sequence of more rows
// than there are; kLeastLongest may be more.
int64_t AtMostRowsOf(const at::Tensor& rows, int64_t longest) {
  return std::min(longest, rows.size(0));
}

// Returns [1, M, H, D] from [M, K, D].
at::Tensor ForEachHead(const at::Tensor& rows, int64_t heads) {
  return rows.repeat_interleave(heads / rows.size(1), 1).unsqueeze(0);
}

// Returns the gradient of `rows` from the gradient of ForEachHead(rows).
at::Tensor SumOverGroups(const at::Tensor& grad, const at::Tensor& rows) {
  const int64_t kv_heads = rows.size(1);
  return grad.squeeze(0)
      .unflatten(1, {kv_heads, grad.size(2) / kv_heads})
      .sum(2);
}

AttentionHeads HeadsOf(const at::Tensor& q, const at::Tensor& k) {
  return {q.size(1), k.size(1), q.size(2)};
}

// Returns the tokens from `begin` on; T as in HeadMatrix.
template <typename T>
HeadMatrix<T> MatrixOf(const at::Tensor& rows, int64_t begin) {
  TORCH_CHECK(rows.stride(2) == 1,
              "[variable_length_attention] a head is not contiguous");
  constexpr bool kIsHalf = std::is_same_v<std::remove_const_t<T>, BFloat16>;
  TORCH_CHECK((rows.scalar_type() == at::kBFloat16) == kIsHalf,
              "[variable_length_attention] queries, keys and values of "
              "different dtypes");
  return {static_cast<T*>(rows.data_ptr()) + begin * rows.stride(0),
          rows.stride(0),
          rows.stride(1)};
}

// Returns the kernels' arguments for `sequences`; T as in HeadMatrix.
template <typename T, typename Sequences>
std::vector<AttentionSequenceOf<T>> ArgumentsOf(const Sequences& sequences,
                                                const at::Tensor& q,
                                                const at::Tensor& k,
                                                const at::Tensor& v,
                                                const at::Tensor& out,
                                                const at::Tensor& logsumexp) {
  std::vector<AttentionSequenceOf<T>> arguments;
  for (const auto& [queries, keys] : sequences) {
    arguments.push_back(
        {queries.tokens,
         keys.tokens,
         MatrixOf<const T>(q, queries.begin),
         MatrixOf<const T>(k, keys.begin),
         MatrixOf<const T>(v, keys.begin),
         MatrixOf<T>(out, queries.begin),
         logsumexp.data_ptr<float>() + queries.begin * q.size(1)});
  }
  return arguments;
}

void CheckHasKernel(const at::Tensor& q) {
  TORCH_CHECK(HasCpuKernels(q),
              "[variable_length_attention] no kernel for ",
              q.scalar_type(),
              " on ",
              q.device());
}

std::vector<RowRange> RangesOf(const std::vector<int64_t>& offsets) {
  std::vector<RowRange> ranges;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    ranges.push_back({offsets[i], offsets[i + 1] - offsets[i]});
  }
  return ranges;
}

}  // namespace

VariableLengthAttention::VariableLengthAttention(
    const std::vector<int64_t>& offsets, at::Device device) {
  if (device.is_cuda()) {
    launch_ = LaunchOf(offsets, device);
    return;
  }
  for (const RowRange& rows : RangesOf(offsets)) {
    if (rows.tokens > 0) sequences_.push_back({rows, rows});
  }
}

VariableLengthAttention::VariableLengthAttention(
    const std::vector<int64_t>& q_offsets,
    const std::vector<RowRange>& keys,
    at::Device device)
    : shares_keys_(true) {
  TORCH_CHECK(keys.size() + 1 == q_offsets.size(),
              "[variable_length_attention] keys of ",
              keys.size(),
              " sequences, queries of ",
              q_offsets.size() - 1);
  if (device.is_cuda()) {
    launch_ = LaunchOf(q_offsets, keys, device);
    return;
  }
  const std::vector<RowRange> queries = RangesOf(q_offsets);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (queries[i].tokens == 0) continue;
    TORCH_CHECK(queries[i].tokens <= keys[i].tokens,
                "[variable_length_attention] sequence ",
                i,
                " has ",
                queries[i].tokens,
                " queries, but only ",
                keys[i].tokens,
                " keys");
    sequences_.push_back({queries[i], keys[i]});
  }
}

AttentionLaunch VariableLengthAttention::LaunchOf(
    const std::vector<int64_t>& offsets, at::Device device) {
  const at::Tensor copied = ToDevice(at::tensor(offsets, at::kInt), device);
  const int64_t longest = Longest(offsets);
  return {.q_offsets = copied,
          .k_offsets = copied,
          .longest_q = longest,
          .longest_k = longest};
}

AttentionLaunch VariableLengthAttention::LaunchOf(
    const std::vector<int64_t>& q_offsets,
    const std::vector<RowRange>& keys,
    at::Device device) {
  AttentionLaunch launch{.longest_q = Longest(q_offsets),
                         .longest_k = kLeastLongest};
  // One copy to the device serves all three tensors.
  std::vector<int64_t> all = q_offsets;
  for (const RowRange& range : keys) {
    all.push_back(range.begin);
    launch.longest_k = std::max(launch.longest_k, range.tokens);
  }
  all.push_back(0);  // the kernels do not read it beside k_tokens
  for (const RowRange& range : keys) all.push_back(range.tokens);
  const auto count = static_cast<int64_t>(keys.size());
  const at::Tensor copied = ToDevice(at::tensor(all, at::kInt), device);
  launch.q_offsets = copied.narrow(0, 0, count + 1);
  launch.k_offsets = copied.narrow(0, count + 1, count + 1);
  launch.k_tokens = copied.narrow(0, 2 * count + 2, count);
  return launch;
}

at::Tensor VariableLengthAttention::ForwardOnCpu(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    AttentionStatistics* statistics) const {
  CheckHasKernel(q);
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  const at::Tensor logsumexp =
      at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
  WithNumberOf(q, [&]<typename T>(T) {
    CausalAttention(at::get_num_threads(),
                    HeadsOf(q, k),
                    ArgumentsOf<T>(sequences_, q, k, v, out, logsumexp));
  });
  if (statistics != nullptr) statistics->tensors = {logsumexp};
  return out;
}

AttentionGradients VariableLengthAttention::BackwardOnCpu(
    const at::Tensor& grad_out,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& out,
    const at::Tensor& logsumexp) const {
  CheckHasKernel(q);
  AttentionGradients gradients = {
      at::empty_like(q, at::MemoryFormat::Contiguous),
      at::empty_like(k, at::MemoryFormat::Contiguous),
      at::empty_like(v, at::MemoryFormat::Contiguous)};
  WithNumberOf(q, [&]<typename T>(T) {
    std::vector<AttentionSequenceGradientsOf<T>> found;
    for (const auto& [queries, keys] : sequences_) {
      found.push_back({MatrixOf<const T>(grad_out, queries.begin),
                       MatrixOf<T>(gradients.q, queries.begin),
                       MatrixOf<T>(gradients.k, keys.begin),
                       MatrixOf<T>(gradients.v, keys.begin)});
    }
    CausalAttentionBackward(at::get_num_threads(),
                            HeadsOf(q, k),
                            ArgumentsOf<T>(sequences_, q, k, v, out, logsumexp),
                            found);
  });
  return gradients;
}

at::Tensor VariableLengthAttention::Forward(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    AttentionStatistics* statistics) const {
  if (!launch_.has_value()) return ForwardOnCpu(q, k, v, statistics);
  if (IsWide(q)) {
    const auto [out, logsumexp, seed, offset, unused_q, unused_k] =
        at::_efficient_attention_forward(q.unsqueeze(0),
                                         ForEachHead(k, q.size(1)),
                                         ForEachHead(v, q.size(1)),
                                         /*bias=*/{},
                                         launch_->q_offsets,
                                         launch_->k_offsets,
                                         launch_->longest_q,
                                         launch_->longest_k,
                                         /*dropout_p=*/0.0,
                                         kFromBottomRight,
                                         /*compute_log_sumexp=*/true,
                                         /*scale=*/std::nullopt,
                                         launch_->k_tokens);
    if (statistics != nullptr) statistics->tensors = {logsumexp, seed, offset};
    return out.squeeze(0);
  }
  if (const FlashAttention3* kernels = FlashAttention3For(q, k, v)) {
    at::Tensor logsumexp;
    at::Tensor out =
        FlashAttention3Forward(*kernels, *launch_, q, k, v, &logsumexp);
    if (statistics != nullptr) statistics->tensors = {logsumexp};
    return out;
  }
  const auto [out, logsumexp, state, unused, mask] =
      at::_flash_attention_forward(q,
                                   k,
                                   v,
                                   launch_->q_offsets,
                                   launch_->k_offsets,
                                   launch_->longest_q,
                                   launch_->longest_k,
                                   /*dropout_p=*/0.0,
                                   /*is_causal=*/true,
                                   /*return_debug_mask=*/false,
                                   /*scale=*/std::nullopt,
                                   /*window_size_left=*/std::nullopt,
                                   /*window_size_right=*/std::nullopt,
                                   launch_->k_tokens);
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
  TORCH_CHECK(!shares_keys_,
              "[variable_length_attention] no gradient where keys are shared");
  const at::Tensor& logsumexp = statistics.tensors[0];
  if (!launch_.has_value()) {
    return BackwardOnCpu(grad_out, q, k, v, out, logsumexp);
  }
  if (IsWide(q)) {
    const auto [grad_q, grad_k, grad_v, grad_bias] =
        at::_efficient_attention_backward(grad_out.unsqueeze(0),
                                          q.unsqueeze(0),
                                          ForEachHead(k, q.size(1)),
                                          ForEachHead(v, q.size(1)),
                                          /*bias=*/{},
                                          out.unsqueeze(0),
                                          launch_->q_offsets,
                                          launch_->k_offsets,
                                          AtMostRowsOf(q, launch_->longest_q),
                                          AtMostRowsOf(k, launch_->longest_k),
                                          logsumexp,
                                          /*dropout_p=*/0.0,
                                          statistics.tensors[1],
                                          statistics.tensors[2],
                                          kFromBottomRight,
                                          /*bias_requires_grad=*/false);
    return {
        grad_q.squeeze(0), SumOverGroups(grad_k, k), SumOverGroups(grad_v, v)};
  }
  // FlashAttention-2 kept more.
  if (statistics.tensors.size() == 1) {
    return FlashAttention3Backward(*FlashAttention3OfDevice(),
                                   *launch_,
                                   grad_out,
                                   q,
                                   k,
                                   v,
                                   out,
                                   logsumexp);
  }
  const auto [grad_q, grad_k, grad_v] =
      at::_flash_attention_backward(grad_out,
                                    q,
                                    k,
                                    v,
                                    out,
                                    logsumexp,
                                    launch_->q_offsets,
                                    launch_->k_offsets,
                                    launch_->longest_q,
                                    launch_->longest_k,
                                    /*dropout_p=*/0.0,
                                    /*is_causal=*/true,
                                    statistics.tensors[1],
                                    statistics.tensors[2]);
  return {grad_q, grad_k, grad_v};
}

}  // namespace dapd
