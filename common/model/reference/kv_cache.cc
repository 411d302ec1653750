#include "common/model/reference/kv_cache.h"

#include <utility>

#include "common/tensor/float8_tensor.h"

namespace dapd {

KvCache::KvCache(const ModelConfig& config,
                 int64_t capacity,
                 at::ScalarType dtype,
                 at::Device device,
                 bool is_float8)
    : capacity_(capacity), is_float8_(is_float8) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    keys_.push_back(
        at::empty({config.num_kv_heads, capacity, config.head_dim}, options));
    values_.push_back(at::empty_like(keys_.back()));
  }
}

void KvCache::Grow(int64_t capacity) {
  if (capacity <= capacity_) return;
  for (std::vector<at::Tensor>* caches : {&keys_, &values_}) {
    for (at::Tensor& cache : *caches) {
      if (cache.size(1) >= capacity) continue;  // a failed call grew it
      at::Tensor larger =
          at::empty({cache.size(0), capacity, cache.size(2)}, cache.options());
      larger.narrow(1, 0, length_).copy_(cache.narrow(1, 0, length_));
      cache = std::move(larger);
    }
  }
  capacity_ = capacity;
}

void KvCache::Append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  const int64_t tokens = k.size(1);
  TORCH_CHECK(length_ + tokens <= capacity_,
              "[kv_cache] ",
              length_,
              " + ",
              tokens,
              " tokens exceed the capacity of ",
              capacity_);
  keys_[layer]
      .narrow(1, length_, tokens)
      .copy_(is_float8_ ? ThroughFloat8(k) : k);
  values_[layer]
      .narrow(1, length_, tokens)
      .copy_(is_float8_ ? ThroughFloat8(v) : v);
}

at::Tensor KvCache::Keys(int64_t layer, int64_t length) const {
  return keys_[layer].narrow(1, 0, length);
}

at::Tensor KvCache::Values(int64_t layer, int64_t length) const {
  return values_[layer].narrow(1, 0, length);
}

}  // namespace dapd
