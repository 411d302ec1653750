// Grouped-query causal attention, once over whole packed sequences and once
// over KV caches. A decoder layer computes q, k, v and knows neither.
//
// Shapes: N rows (tokens), H query heads, K key-value heads, D head_dim.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/model/reference/kv_cache.h"
#include "common/model/spec/model_config.h"
#include "common/model/variable_length_attention.h"
#include "common/tensor/aten.h"

namespace dapd {

class Attention {
 public:
  virtual ~Attention() = default;
  // softmax(q k^T / sqrt(D)) v. q [N, H, D]; k, v [N, K, D], already rotated.
  // Returns [N, H * D].
  virtual at::Tensor Attend(int64_t layer,
                            const at::Tensor& q,
                            const at::Tensor& k,
                            const at::Tensor& v) = 0;
};

// Sequences side by side; `offsets` as in PackedTokens. Differentiable.
// Stateless: the same object serves a recomputation.
class PackedAttention : public Attention {
 public:
  PackedAttention(std::vector<int64_t> offsets, at::Device device);
  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) override;

 private:
  std::vector<int64_t> offsets_;
  std::optional<VariableLengthAttention> at_once_;  // on CUDA
};

// All `tokens` rows are the first of one sequence; fills its empty cache.
class PromptAttention : public Attention {
 public:
  PromptAttention(KvCache* cache, int64_t tokens, at::Device device);
  at::Tensor Attend(int64_t layer,
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
  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) override;

 private:
  std::span<KvCache* const> caches_;
};

}  // namespace dapd
