#include "common/model/fast/chunk_attention.h"

#include <limits>
#include <utility>

#include "common/model/fast/flash_attention.h"

namespace dapd {
namespace {

// Row t sees the past and rows 0..t of its own: [group * T, past + T]. The rows
// stand once for each query head of a group.
at::Tensor MakeMask(int64_t past,
                    int64_t tokens,
                    int64_t group,
                    const at::TensorOptions& options) {
  const at::Tensor own =
      at::full(
          {tokens, tokens}, -std::numeric_limits<double>::infinity(), options)
          .triu(1);
  return at::cat({at::zeros({tokens, past}, options), own}, 1)
      .repeat({group, 1});
}

}  // namespace

ChunkAttention::ChunkAttention(const ModelConfig& config,
                               std::vector<at::Tensor> past,
                               int64_t tokens,
                               const at::TensorOptions& options)
    : past_(std::move(past)) {
  for (const at::Tensor& chunk : past_) begin_ += chunk.size(3);
  if (!HasCausalAttention(at::empty({0}, options))) {
    mask_ = MakeMask(
        begin_, tokens, config.num_heads / config.num_kv_heads, options);
  }
}

at::Tensor ChunkAttention::Attend(int64_t layer,
                                  const at::Tensor& q,
                                  const at::Tensor& keys,
                                  const at::Tensor& values) const {
  const at::Tensor all_keys = WithPast(layer, 0, keys);
  const at::Tensor all_values = WithPast(layer, 1, values);
  return mask_.defined() ? MaskedProduct(q, all_keys, all_values)
                         : AttendFromEnd(q, all_keys, all_values);
}

at::Tensor ChunkAttention::WithPast(int64_t layer,
                                    int64_t part,
                                    const at::Tensor& own) const {
  std::vector<at::Tensor> all;
  all.reserve(past_.size() + 1);
  for (const at::Tensor& chunk : past_) all.push_back(chunk[layer][part]);
  all.push_back(own);
  return at::cat(all, 1);
}

// The query heads of a group are more rows over the same keys, [1, K, H / K *
// T, D]: no key is repeated.
at::Tensor ChunkAttention::MaskedProduct(const at::Tensor& q,
                                         const at::Tensor& keys,
                                         const at::Tensor& values) const {
  const int64_t tokens = q.size(0);
  const int64_t heads = q.size(1);
  const int64_t kv_heads = keys.size(0);
  const at::Tensor rows =
      q.transpose(0, 1).reshape({1, kv_heads, heads / kv_heads * tokens, -1});
  return at::scaled_dot_product_attention(
             rows, keys.unsqueeze(0), values.unsqueeze(0), mask_)
      .view({heads, tokens, q.size(2)})
      .transpose(0, 1)
      .contiguous();
}

SideBySideAttention::SideBySideAttention(const ModelConfig& config,
                                         const std::vector<PackedChunk>& chunks,
                                         const at::Tensor& keys_values) {
  std::vector<std::vector<at::Tensor>> pasts;
  int64_t row = 0;
  for (const PackedChunk& chunk : chunks) {
    std::vector<at::Tensor>& past = pasts.emplace_back(chunk.past);
    if (chunk.parent >= 0) {
      const auto parent = static_cast<size_t>(chunk.parent);
      const RowRange& rows = parts_.at(parent).rows;
      past = pasts.at(parent);
      past.push_back(keys_values.narrow(3, rows.begin, rows.tokens));
    }
    parts_.push_back(
        {{row, chunk.tokens},
         ChunkAttention(config, past, chunk.tokens, keys_values.options())});
    row += chunk.tokens;
  }
}

at::Tensor SideBySideAttention::Attend(int64_t layer,
                                       const at::Tensor& q,
                                       const at::Tensor& keys,
                                       const at::Tensor& values) const {
  std::vector<at::Tensor> outs;
  for (const auto& [rows, attention] : parts_) {
    outs.push_back(attention.Attend(layer,
                                    q.narrow(0, rows.begin, rows.tokens),
                                    keys.narrow(1, rows.begin, rows.tokens),
                                    values.narrow(1, rows.begin, rows.tokens)));
  }
  return outs.size() == 1 ? outs.front() : at::cat(outs, 0);
}

}  // namespace dapd
