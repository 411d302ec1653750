#include "common/model/reference/attention.h"

#include <cmath>
#include <utility>

namespace dapd {
namespace {

// q [T, H, D], k and v [T, K, D] of one sequence -> [T, H * D].
at::Tensor CausalAttention(const at::Tensor& q,
                           const at::Tensor& k,
                           const at::Tensor& v) {
  const int64_t group = q.size(1) / k.size(1);
  // Head-major [1, H, T, D]; query head h reads key-value head h / group.
  const at::Tensor q_1HTD = q.transpose(0, 1).unsqueeze(0);
  const at::Tensor k_1HTD =
      k.transpose(0, 1).repeat_interleave(group, 0).unsqueeze(0);
  const at::Tensor v_1HTD =
      v.transpose(0, 1).repeat_interleave(group, 0).unsqueeze(0);
  const at::Tensor out_1HTD =
      at::scaled_dot_product_attention(q_1HTD,
                                       k_1HTD,
                                       v_1HTD,
                                       /*attn_mask=*/{},
                                       /*dropout_p=*/0.0,
                                       /*is_causal=*/true);
  return out_1HTD.squeeze(0).transpose(0, 1).reshape(
      {q.size(0), q.size(1) * q.size(2)});
}

}  // namespace

PackedAttention::PackedAttention(std::vector<int64_t> offsets,
                                 at::Device device)
    : offsets_(std::move(offsets)) {
  if (device.is_cuda()) at_once_.emplace(offsets_, device);
}

at::Tensor PackedAttention::Attend(int64_t /*layer*/,
                                   const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v) {
  if (at_once_.has_value())
    return at_once_->Forward(q, k, v, nullptr).flatten(1);
  std::vector<at::Tensor> parts;
  parts.reserve(offsets_.size() - 1);
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const int64_t begin = offsets_[i];
    const int64_t tokens = offsets_[i + 1] - begin;
    parts.push_back(CausalAttention(q.narrow(0, begin, tokens),
                                    k.narrow(0, begin, tokens),
                                    v.narrow(0, begin, tokens)));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 0);
}

PromptAttention::PromptAttention(KvCache* cache,
                                 int64_t tokens,
                                 at::Device device)
    : cache_(cache), attention_({0, tokens}, device) {}

at::Tensor PromptAttention::Attend(int64_t layer,
                                   const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v) {
  cache_->Append(layer, k.transpose(0, 1), v.transpose(0, 1));
  return attention_.Attend(layer, q, k, v);
}

at::Tensor DecodeAttention::Attend(int64_t layer,
                                   const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v) {
  const int64_t heads = q.size(1);
  const int64_t kv_heads = k.size(1);
  const int64_t head_dim = q.size(2);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  at::Tensor out = at::zeros({q.size(0), heads * head_dim}, q.options());
  for (int64_t row = 0; row < q.size(0); ++row) {
    KvCache* cache = caches_[static_cast<size_t>(row)];
    if (cache == nullptr) continue;
    cache->Append(layer, k[row].unsqueeze(1), v[row].unsqueeze(1));
    const int64_t length = cache->length() + 1;
    // [K, H / K, D] x [K, D, length]
    const at::Tensor scores =
        at::bmm(q[row].view({kv_heads, heads / kv_heads, head_dim}),
                cache->Keys(layer, length).transpose(1, 2)) *
        scale;
    const at::Tensor probabilities =
        at::softmax(scores, -1, at::kFloat).to(q.scalar_type());
    out[row].copy_(
        at::bmm(probabilities, cache->Values(layer, length)).flatten());
  }
  return out;
}

}  // namespace dapd
