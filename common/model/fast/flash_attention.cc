#include "common/model/fast/flash_attention.h"

#include <algorithm>
#include <span>
#include <type_traits>
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
  constexpr bool kIsHalf = std::is_same_v<std::remove_const_t<T>, BFloat16>;
  TORCH_CHECK((rows.scalar_type() == at::kBFloat16) == kIsHalf,
              "[flash_attention] queries, keys and values of different dtypes");
  return {static_cast<T*>(rows.data_ptr()) + begin * rows.stride(0),
          rows.stride(0),
          rows.stride(1)};
}

template <typename T>
std::vector<AttentionSequenceOf<T>> SequencesOf(
    const std::vector<int64_t>& offsets,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& out,
    const at::Tensor& logsumexp) {
  std::vector<AttentionSequenceOf<T>> sequences;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const int64_t begin = offsets[i];
    const int64_t tokens = offsets[i + 1] - begin;
    sequences.push_back({tokens,
                         tokens,
                         MatrixOf<const T>(q, begin),
                         MatrixOf<const T>(k, begin),
                         MatrixOf<const T>(v, begin),
                         MatrixOf<T>(out, begin),
                         logsumexp.data_ptr<float>() + begin * q.size(1)});
  }
  return sequences;
}

// body(T{}) with T the kernels' name for q's dtype.
template <typename Body>
void WithNumberOf(const at::Tensor& q, const Body& body) {
  if (q.scalar_type() == at::kBFloat16) {
    body(BFloat16{});
  } else {
    body(float{});
  }
}

// [N, H] for the rows and heads of q.
at::Tensor MakeLogSumExp(const at::Tensor& q) {
  return at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
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
  return tensor.is_cpu() && (tensor.scalar_type() == at::kFloat ||
                             tensor.scalar_type() == at::kBFloat16);
}

at::Tensor AttendFromEnd(const at::Tensor& q,
                         const at::Tensor& keys,
                         const at::Tensor& values) {
  const at::Tensor k = keys.transpose(0, 1);
  const at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  const at::Tensor logsumexp = MakeLogSumExp(q);
  WithNumberOf(q, [&]<typename T>(T) {
    const AttentionSequenceOf<T> sequence = {
        q.size(0),
        k.size(0),
        MatrixOf<const T>(q, 0),
        MatrixOf<const T>(k, 0),
        MatrixOf<const T>(values.transpose(0, 1), 0),
        MatrixOf<T>(out, 0),
        logsumexp.data_ptr<float>()};
    CausalAttention(at::get_num_threads(),
                    HeadsOf(q, k),
                    std::span<const AttentionSequenceOf<T>>(&sequence, 1));
  });
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
    statistics->tensors = {MakeLogSumExp(q)};
    WithNumberOf(q, [&]<typename T>(T) {
      CausalAttention(
          at::get_num_threads(),
          HeadsOf(q, k),
          SequencesOf<T>(offsets_, q, k, v, out, statistics->tensors[0]));
    });
    return out;
  }
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const int64_t begin = offsets_[i];
    const int64_t tokens = offsets_[i + 1] - begin;
    const at::Tensor part = CausalProduct(HeadMajor(q, begin, tokens),
                                          HeadMajor(k, begin, tokens),
                                          HeadMajor(v, begin, tokens));
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
    WithNumberOf(q, [&]<typename T>(T) {
      std::vector<AttentionSequenceGradientsOf<T>> found;
      for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
        found.push_back({MatrixOf<const T>(grad_out, offsets_[i]),
                         MatrixOf<T>(gradients.q, offsets_[i]),
                         MatrixOf<T>(gradients.k, offsets_[i]),
                         MatrixOf<T>(gradients.v, offsets_[i])});
      }
      CausalAttentionBackward(
          at::get_num_threads(),
          HeadsOf(q, k),
          SequencesOf<T>(offsets_, q, k, v, out, statistics.tensors[0]),
          found);
    });
    return gradients;
  }
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const int64_t begin = offsets_[i];
    const int64_t tokens = offsets_[i + 1] - begin;
    const AttentionGradients part =
        DifferentiateProduct(HeadMajor(grad_out, begin, tokens),
                             HeadMajor(q, begin, tokens),
                             HeadMajor(k, begin, tokens),
                             HeadMajor(v, begin, tokens));
    gradients.q.narrow(0, begin, tokens).copy_(TokenMajor(part.q));
    gradients.k.narrow(0, begin, tokens).copy_(TokenMajor(part.k));
    gradients.v.narrow(0, begin, tokens).copy_(TokenMajor(part.v));
  }
  return gradients;
}

}  // namespace dapd
