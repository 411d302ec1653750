#include "common/model/fast/flash_attention.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "torch/csrc/autograd/autograd.h"

#include "common/kernels/causal_attention.h"

namespace dapd {
namespace {

// LibTorch's variable-length kernels compute in half precision only.
bool HasVariableLengthKernel(const at::Tensor& q) {
  return q.is_cuda() && q.scalar_type() != at::kFloat;
}

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

at::Tensor CausalProduct(const at::Tensor& q,
                         const at::Tensor& k,
                         const at::Tensor& v) {
  return at::scaled_dot_product_attention(q,
                                          k,
                                          v,
                                          /*attn_mask=*/{},
                                          /*dropout_p=*/0.0,
                                          /*is_causal=*/true,
                                          /*scale=*/std::nullopt,
                                          /*enable_gqa=*/true);
}

// Where there is no kernel with a backward of its own: LibTorch's choice, again
// and with a graph in the backward pass.
AttentionGradients DifferentiateProduct(const at::Tensor& grad_out,
                                        const at::Tensor& q,
                                        const at::Tensor& k,
                                        const at::Tensor& v) {
  at::AutoGradMode with_grad(true);
  std::vector<at::Tensor> inputs = {q.detach(), k.detach(), v.detach()};
  for (at::Tensor& input : inputs) input.requires_grad_(true);
  const std::vector<at::Tensor> found = torch::autograd::grad(
      {CausalProduct(inputs[0], inputs[1], inputs[2])}, inputs, {grad_out});
  return {found[0], found[1], found[2]};
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
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    longest_ = std::max(longest_, offsets_[i + 1] - offsets_[i]);
  }
  if (device.is_cuda()) {
    cuda_offsets_ = at::tensor(offsets_, at::kInt).to(device);
  }
}

at::Tensor FlashAttention::Forward(const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v,
                                   AttentionStatistics* statistics) const {
  statistics->tensors.clear();
  if (HasVariableLengthKernel(q)) {
    auto [out, logsumexp, generator, unused, mask] =
        at::_flash_attention_forward(q,
                                     k,
                                     v,
                                     cuda_offsets_,
                                     cuda_offsets_,
                                     longest_,
                                     longest_,
                                     /*dropout_p=*/0.0,
                                     /*is_causal=*/true,
                                     /*return_debug_mask=*/false);
    statistics->tensors = {logsumexp, generator, unused};
    return out;
  }
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
    at::Tensor part;
    if (q.is_cuda()) {
      part = CausalProduct(head_q, head_k, head_v);
    } else {
      at::Tensor logsumexp;
      std::tie(part, logsumexp) =
          at::_scaled_dot_product_flash_attention_for_cpu(
              head_q, head_k, head_v, /*dropout_p=*/0.0, /*is_causal=*/true);
      statistics->tensors.push_back(logsumexp);
    }
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
  if (HasVariableLengthKernel(q)) {
    auto [grad_q, grad_k, grad_v] =
        at::_flash_attention_backward(grad_out,
                                      q,
                                      k,
                                      v,
                                      out,
                                      statistics.tensors[0],
                                      cuda_offsets_,
                                      cuda_offsets_,
                                      longest_,
                                      longest_,
                                      /*dropout_p=*/0.0,
                                      /*is_causal=*/true,
                                      statistics.tensors[1],
                                      statistics.tensors[2]);
    return {grad_q, grad_k, grad_v};
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
    AttentionGradients part;
    if (q.is_cuda()) {
      part = DifferentiateProduct(head_grad, head_q, head_k, head_v);
    } else {
      std::tie(part.q, part.k, part.v) =
          at::_scaled_dot_product_flash_attention_for_cpu_backward(
              head_grad,
              head_q,
              head_k,
              head_v,
              HeadMajor(out, begin, tokens),
              statistics.tensors[i],
              /*dropout_p=*/0.0,
              /*is_causal=*/true);
    }
    gradients.q.narrow(0, begin, tokens).copy_(TokenMajor(part.q));
    gradients.k.narrow(0, begin, tokens).copy_(TokenMajor(part.k));
    gradients.v.narrow(0, begin, tokens).copy_(TokenMajor(part.v));
  }
  return gradients;
}

}  // namespace dapd
