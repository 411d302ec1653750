#include "common/model/fast/flash_attention.h"

#include <span>
#include <type_traits>
#include <utility>

#include "common/kernels/causal_attention.h"
#include "common/model/fast/number_type.h"

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

// [N, H] for the rows and heads of q.
at::Tensor MakeLogSumExp(const at::Tensor& q) {
  return at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
}

void CheckNumber(const at::Tensor& q) {
  TORCH_CHECK(HasCausalAttention(q),
              "[flash_attention] no kernel for ",
              q.scalar_type(),
              " on ",
              q.device());
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
  if (device.is_cuda()) at_once_.emplace(offsets_, device);
}

at::Tensor FlashAttention::Forward(const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v,
                                   AttentionStatistics* statistics) const {
  if (at_once_.has_value()) return at_once_->Forward(q, k, v, statistics);
  CheckNumber(q);
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  statistics->tensors = {MakeLogSumExp(q)};
  WithNumberOf(q, [&]<typename T>(T) {
    CausalAttention(
        at::get_num_threads(),
        HeadsOf(q, k),
        SequencesOf<T>(offsets_, q, k, v, out, statistics->tensors[0]));
  });
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
  CheckNumber(q);
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

}  // namespace dapd
