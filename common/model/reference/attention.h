// Grouped-query causal attention over whole packed sequences and over KV
// caches. A decoder layer computes q, k, v and does not know which of them
// follows.
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
  // Returns the attention of `layer` by its recipe, [N, H * D]. q [N, H, D]; k,
  // v [N, K, D], already rotated.
  virtual at::Tensor Attend(const AttentionRecipe& recipe,
                            int64_t layer,
                            const at::Tensor& q,
                            const at::Tensor& k,
                            const at::Tensor& v) = 0;
};

// Attends over sequences side by side; `offsets` as in PackedTokens.
// Differentiable. Stateless: one object also serves a recomputation.
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

// Attends over the tokens of one sequence that follow the chunks of `past`,
// whose keys and values have the form of ChunkStates
// (model/fast/chunk_forward.h). Writes the rows' own keys and values to
// `keys_values` [layers, 2, K, N, D]. No gradient.
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

// Attends over `tokens` rows that begin one sequence, and fills its empty
// cache.
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
// Each row is computed by itself, so its bits do not depend on the other rows.
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
