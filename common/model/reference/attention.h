// Grouped-query causal attention, once over whole packed sequences and once
// over KV caches. A decoder layer computes q, k, v and knows neither.
//
// Shapes: N rows (tokens), H query heads, K key-value heads, D head_dim.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/model/reference/kv_cache.h"
#include "common/model/spec/layer_recipe.h"
#include "common/model/variable_length_attention.h"
#include "common/tensor/aten.h"

namespace dapd {

class Attention {
 public:
  virtual ~Attention() = default;
  // The attention of `layer` by its recipe. q [N, H, D]; k, v [N, K, D],
  // already rotated. Returns [N, H * D].
  virtual at::Tensor Attend(const AttentionRecipe& recipe,
                            int64_t layer,
                            const at::Tensor& q,
                            const at::Tensor& k,
                            const at::Tensor& v) = 0;
};

// Sequences side by side; `offsets` as in PackedTokens. Differentiable.
// Stateless: the same object serves a recomputation.
class PackedAttention : public Attention {
 public:
  PackedAttention(std::vector<int64_t> offsets, at::Device device);
  at::Tensor Attend(const AttentionRecipe& recipe,
                    int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) override;

 private:
  std::vector<int64_t> offsets_;
  std::optional<VariableLengthAttention> at_once_;  // on CUDA
};

// The rows are the tokens of one sequence that follow the chunks of `past`,
// whose keys and values are as in ChunkStates (model/fast/chunk_forward.h).
// Writes the rows' own to `keys_values` [layers, 2, K, N, D]. No gradient.
class PastAttention : public Attention {
 public:
  PastAttention(std::vector<at::Tensor> past, at::Tensor keys_values)
      : past_(std::move(past)), keys_values_(std::move(keys_values)) {}
  at::Tensor Attend(const AttentionRecipe& recipe,
                    int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) override;

 private:
  const std::vector<at::Tensor> past_;
  const at::Tensor keys_values_;
};

// All `tokens` rows are the first of one sequence; fills its empty cache.
class PromptAttention : public Attention {
 public:
  PromptAttention(KvCache* cache, int64_t tokens, at::Device device);
  at::Tensor Attend(const AttentionRecipe& recipe,
                    int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) override;

 private:
  KvCache* cache_;
  PackedAttention attention_;
};

// Row i is the next token of caches[i]; rows with a null cache return zeros.
// Each row is computed by itself, so its bits do not depend on the others.
class DecodeAttention : public Attention {
 public:
  explicit DecodeAttention(std::span<KvCache* const> caches)
      : caches_(caches) {}
  at::Tensor Attend(const AttentionRecipe& recipe,
                    int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) override;

 private:
  std::span<KvCache* const> caches_;
};

}  // namespace dapd
