#include "common/model/fast/flash_attention.h"

#include <span>
#include <utility>

#include "common/kernels/causal_attention.h"

namespace dapd {
namespace {

AttentionHeads HeadsOf(const at::Tensor& q, const at::Tensor& k) {
  return {q.size(1), k.size(1), q.size(2)};
}

// The tokens from `begin` on; T as in HeadMatrix.
template <typename T>
HeadMatrix<T> MatrixOf(const at::Tensor& rows, int64_t begin) {
  TORCH_CHECK(rows.stride(2) == 1,
              "[flash_attention] a head is not contiguous");
  return {rows.data_ptr<float>() + begin * rows.stride(0),
          rows.stride(0),
          rows.stride(1)};
}

std::vector<AttentionSequence> SequencesOf(const std::vector<int64_t>& offsets,
                                           const at::Tensor& q,
                                           const at::Tensor& k,
                                           const at::Tensor& v,
                                           const at::Tensor& out,
                                           const at::Tensor& logsumexp) {
  std::vector<AttentionSequence> sequences;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const int64_t begin = offsets[i];
    const int64_t tokens = offsets[i + 1] - begin;
    sequences.push_back({tokens,
                         tokens,
                         MatrixOf<const float>(q, begin),
                         MatrixOf<const float>(k, begin),
                         MatrixOf<const float>(v, begin),
                         MatrixOf<float>(out, begin),
                         logsumexp.data_ptr<float>() + begin * q.size(1)});
  }
  return sequences;
}

// [tokens, heads, D] of one sequence -> head-major [1, heads, tokens, D].
at::Tensor HeadMajor(const at::Tensor& rows, int64_t begin, int64_t tokens) {
  return rows.narrow(0, begin, tokens).transpose(0, 1).unsqueeze(0);
}

at::Tensor TokenMajor(const at::Tensor& heads) {
  return heads.squeeze(0).transpose(0, 1);
}

}  // namespace

bool HasCausalAttention(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
}

at::Tensor AttendFromEnd(const at::Tensor& q,
                         const at::Tensor& keys,
                         const at::Tensor& values) {
  const at::Tensor k = keys.transpose(0, 1);
  const at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  const at::Tensor logsumexp = at::empty({q.size(0), q.size(1)}, q.options());
  const AttentionSequence sequence = {
      q.size(0),
      k.size(0),
      MatrixOf<const float>(q, 0),
      MatrixOf<const float>(k, 0),
      MatrixOf<const float>(values.transpose(0, 1), 0),
      MatrixOf<float>(out, 0),
      logsumexp.data_ptr<float>()};
  CausalAttention(at::get_num_threads(), HeadsOf(q, k), {&sequence, 1});
  return out;
}

FlashAttention::FlashAttention(std::vector<int64_t> offsets, at::Device device)
    : offsets_(std::move(offsets)) {
  if (device.is_cuda()) at_once_.emplace(offsets_, device);
}

at::Tensor FlashAttention::Forward(const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v,
                                   AttentionStatistics* statistics) const {
  if (at_once_.has_value()) return at_once_->Forward(q, k, v, statistics);
  statistics->tensors.clear();
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  if (HasCausalAttention(q)) {
    statistics->tensors = {at::empty({q.size(0), q.size(1)}, q.options())};
    CausalAttention(
        at::get_num_threads(),
        HeadsOf(q, k),
        SequencesOf(offsets_, q, k, v, out, statistics->tensors[0]));
    return out;
  }
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const int64_t begin = offsets_[i];
    const int64_t tokens = offsets_[i + 1] - begin;
    const at::Tensor head_q = HeadMajor(q, begin, tokens);
    const at::Tensor head_k = HeadMajor(k, begin, tokens);
    const at::Tensor head_v = HeadMajor(v, begin, tokens);
    const auto [part, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(
            head_q, head_k, head_v, /*dropout_p=*/0.0, /*is_causal=*/true);
    statistics->tensors.push_back(logsumexp);
    if (offsets_.size() == 2) return TokenMajor(part).contiguous();
    out.narrow(0, begin, tokens).copy_(TokenMajor(part));
  }
  return out;
}

AttentionGradients FlashAttention::Backward(
    const at::Tensor& grad_out,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& out,
    const AttentionStatistics& statistics) const {
  if (at_once_.has_value()) {
    return at_once_->Backward(grad_out, q, k, v, out, statistics);
  }
  AttentionGradients gradients = {
      at::empty_like(q, at::MemoryFormat::Contiguous),
      at::empty_like(k, at::MemoryFormat::Contiguous),
      at::empty_like(v, at::MemoryFormat::Contiguous)};
  if (HasCausalAttention(q)) {
    std::vector<AttentionSequenceGradients> found;
    for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
      found.push_back({MatrixOf<const float>(grad_out, offsets_[i]),
                       MatrixOf<float>(gradients.q, offsets_[i]),
                       MatrixOf<float>(gradients.k, offsets_[i]),
                       MatrixOf<float>(gradients.v, offsets_[i])});
    }
    CausalAttentionBackward(
        at::get_num_threads(),
        HeadsOf(q, k),
        SequencesOf(offsets_, q, k, v, out, statistics.tensors[0]),
        found);
    return gradients;
  }
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const int64_t begin = offsets_[i];
    const int64_t tokens = offsets_[i + 1] - begin;
    const at::Tensor head_grad = HeadMajor(grad_out, begin, tokens);
    const at::Tensor head_q = HeadMajor(q, begin, tokens);
    const at::Tensor head_k = HeadMajor(k, begin, tokens);
    const at::Tensor head_v = HeadMajor(v, begin, tokens);
    const auto [part_q, part_k, part_v] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            head_grad,
            head_q,
            head_k,
            head_v,
            HeadMajor(out, begin, tokens),
            statistics.tensors[i],
            /*dropout_p=*/0.0,
            /*is_causal=*/true);
    gradients.q.narrow(0, begin, tokens).copy_(TokenMajor(part_q));
    gradients.k.narrow(0, begin, tokens).copy_(TokenMajor(part_k));
    gradients.v.narrow(0, begin, tokens).copy_(TokenMajor(part_v));
  }
  return gradients;
}

}  // namespace dapd
