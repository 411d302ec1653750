#include "common/model/reference/attention.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace dapd {
namespace {

// Returns [T, H * D] for q [T, H, D], k and v [T, K, D] of one sequence.
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

// Returns the attention of the last T tokens of a sequence over its keys, [T, H
// * D], by `recipe`: query block by query block, each over the keys that it can
// see. q [T, H, D]; keys and values [K, M, D].
at::Tensor AttendByRecipe(const AttentionRecipe& recipe,
                          const at::Tensor& q,
                          const at::Tensor& keys,
                          const at::Tensor& values) {
  constexpr int64_t kBlock = 256;
  const int64_t kv_heads = keys.size(0);
  const int64_t group = q.size(1) / kv_heads;
  const int64_t head_dim = q.size(2);
  const int64_t past = keys.size(1) - q.size(0);
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < q.size(0); begin += kBlock) {
    const int64_t count = std::min(kBlock, q.size(0) - begin);
    const int64_t end_key = past + begin + count;
    const int64_t first_key =
        recipe.window > 0
            ? std::max<int64_t>(0, past + begin + 1 - recipe.window)
            : 0;
    const int64_t width = end_key - first_key;
    // The query heads of a group become additional rows over their common keys.
    const at::Tensor rows = q.narrow(0, begin, count)
                                .view({count, kv_heads, group, head_dim})
                                .permute({1, 2, 0, 3})
                                .reshape({kv_heads, group * count, head_dim});
    at::Tensor scores =
        at::bmm(rows, keys.narrow(1, first_key, width).transpose(1, 2)) *
        recipe.scale;
    if (recipe.softcap > 0.0) {
      scores = at::tanh(scores / recipe.softcap) * recipe.softcap;
    }
    const auto options = q.options().dtype(at::kLong);
    const at::Tensor distance =
        at::arange(past + begin, end_key, options).unsqueeze(1) -
        at::arange(first_key, end_key, options);  // query's distance from a key
    at::Tensor is_shut = distance < 0;
    if (recipe.window > 0) is_shut = is_shut | (distance >= recipe.window);
    scores =
        scores.view({kv_heads, group, count, width})
            .masked_fill(is_shut, -std::numeric_limits<double>::infinity());
    const at::Tensor probabilities =
        at::softmax(scores, -1, at::kFloat).to(q.scalar_type());
    parts.push_back(at::bmm(probabilities.view({kv_heads, -1, width}),
                            values.narrow(1, first_key, width))
                        .view({kv_heads, group, count, head_dim})
                        .permute({2, 0, 1, 3})
                        .reshape({count, -1}));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 0);
}

}  // namespace

PackedAttention::PackedAttention(std::vector<int64_t> offsets,
                                 at::Device device)
    : offsets_(std::move(offsets)) {
  if (device.is_cuda()) at_once_.emplace(offsets_, device);
}

at::Tensor PackedAttention::Attend(const AttentionRecipe& recipe,
                                   int64_t /*layer*/,
                                   const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v) {
  const bool is_plain = recipe.IsPlain();
  if (is_plain && at_once_.has_value())
    return at_once_->Forward(q, k, v, nullptr).flatten(1);
  std::vector<at::Tensor> parts;
  parts.reserve(offsets_.size() - 1);
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const int64_t begin = offsets_[i];
    const int64_t tokens = offsets_[i + 1] - begin;
    const at::Tensor own_q = q.narrow(0, begin, tokens);
    const at::Tensor own_k = k.narrow(0, begin, tokens);
    const at::Tensor own_v = v.narrow(0, begin, tokens);
    parts.push_back(
        is_plain
            ? CausalAttention(own_q, own_k, own_v)
            : AttendByRecipe(
                  recipe, own_q, own_k.transpose(0, 1), own_v.transpose(0, 1)));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 0);
}

at::Tensor PastAttention::Attend(const AttentionRecipe& recipe,
                                 int64_t layer,
                                 const at::Tensor& q,
                                 const at::Tensor& k,
                                 const at::Tensor& v) {
  std::vector<at::Tensor> all;
  for (const auto& [part, own] : {std::pair(0, k), std::pair(1, v)}) {
    const at::Tensor kept = keys_values_[layer][part];
    kept.copy_(own.transpose(0, 1));
    std::vector<at::Tensor> chunks;
    for (const at::Tensor& chunk : past_) chunks.push_back(chunk[layer][part]);
    chunks.push_back(kept);
    all.push_back(at::cat(chunks, 1));
  }
  return AttendByRecipe(recipe, q, all[0], all[1]);
}

PromptAttention::PromptAttention(KvCache* cache,
                                 int64_t tokens,
                                 at::Device device)
    : cache_(cache), attention_({0, tokens}, device) {}

at::Tensor PromptAttention::Attend(const AttentionRecipe& recipe,
                                   int64_t layer,
                                   const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v) {
  cache_->Append(layer, k.transpose(0, 1), v.transpose(0, 1));
  return attention_.Attend(recipe, layer, q, k, v);
}

at::Tensor DecodeAttention::Attend(const AttentionRecipe& recipe,
                                   int64_t layer,
                                   const at::Tensor& q,
                                   const at::Tensor& k,
                                   const at::Tensor& v) {
  const int64_t heads = q.size(1);
  const int64_t kv_heads = k.size(1);
  const int64_t head_dim = q.size(2);
  at::Tensor out = at::zeros({q.size(0), heads * head_dim}, q.options());
  for (int64_t row = 0; row < q.size(0); ++row) {
    KvCache* cache = caches_[static_cast<size_t>(row)];
    if (cache == nullptr) continue;
    cache->Append(layer, k[row].unsqueeze(1), v[row].unsqueeze(1));
    const int64_t length = cache->length() + 1;
    if (!recipe.IsPlain()) {
      out[row].copy_(AttendByRecipe(recipe,
                                    q[row].unsqueeze(0),
                                    cache->Keys(layer, length),
                                    cache->Values(layer, length))[0]);
      continue;
    }
    // [K, H / K, D] x [K, D, length]
    const at::Tensor scores =
        at::bmm(q[row].view({kv_heads, heads / kv_heads, head_dim}),
                cache->Keys(layer, length).transpose(1, 2)) *
        recipe.scale;
    const at::Tensor probabilities =
        at::softmax(scores, -1, at::kFloat).to(q.scalar_type());
    out[row].copy_(
        at::bmm(probabilities, cache->Values(layer, length)).flatten());
  }
  return out;
}

}  // namespace dapd
