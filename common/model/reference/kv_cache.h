// The keys and values of one sequence that is being decoded.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/spec/model_config.h"
#include "common/tensor/aten.h"

namespace dapd {

// Every layer holds [num_kv_heads, capacity, head_dim] for keys and values, so
// that the memory layout (and with it a matrix library's choice of kernels)
// depends only on this sequence. Not thread-safe.
class KvCache {
 public:
  // Makes room for `capacity` tokens. A token takes 2 * layers * kv_heads *
  // head_dim numbers. With `is_float8` they are rounded to Float8
  // (float8_tensor.h) and kept in `dtype`: the memory is not less, but what is
  // computed is what a cache of Float8 gives.
  KvCache(const ModelConfig& config,
          int64_t capacity,
          at::ScalarType dtype,
          at::Device device,
          bool is_float8 = false);

  // Makes room for `capacity` tokens in all, layer by layer: besides the caches
  // before and after, one layer's cache is in memory at a time. No effect if
  // there is room. Throws LibTorch's error if there is no memory; the cache can
  // then be used and grown as before.
  void Grow(int64_t capacity);

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

  // Stores k, v [num_kv_heads, T, head_dim] behind the stored tokens; every
  // layer of one forward pass does so before Advance(T) makes them part of the
  // past.
  void Append(int64_t layer, const at::Tensor& k, const at::Tensor& v);
  void Advance(int64_t tokens) { length_ += tokens; }

  // Returns [num_kv_heads, length, head_dim], without a copy.
  at::Tensor Keys(int64_t layer, int64_t length) const;
  at::Tensor Values(int64_t layer, int64_t length) const;

 private:
  int64_t capacity_;
  bool is_float8_;
  int64_t length_ = 0;
  std::vector<at::Tensor> keys_;
  std::vector<at::Tensor> values_;
};

}  // namespace dapd
