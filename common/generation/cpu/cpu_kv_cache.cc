#include "common/generation/cpu/cpu_kv_cache.h"

#include <new>

#include "common/kernels/bfloat16.h"

namespace dapd {
namespace {

// Numbers of the keys, or the values, of one head in one layer.
int64_t HeadNumbers(int64_t head_dim, int64_t capacity) {
  // Keys pad the depth, values the width; the same room for both.
  return CpuKvCache::PaddedWidth(head_dim) * capacity;
}

int64_t NumNumbers(const ModelConfig& config, int64_t capacity) {
  return 2 * config.num_layers * config.num_kv_heads *
         HeadNumbers(config.head_dim, CpuKvCache::PaddedWidth(capacity));
}

}  // namespace

int64_t CpuKvCache::Bytes(const ModelConfig& config,
                          int64_t capacity,
                          bool is_bfloat16) {
  return NumNumbers(config, capacity) * (is_bfloat16 ? 2 : 4);
}

CpuKvCache::CpuKvCache(const ModelConfig& config,
                       int64_t capacity,
                       bool is_bfloat16)
    : num_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      capacity_(PaddedWidth(capacity)),
      is_bfloat16_(is_bfloat16) {
  // Zeros: what lies past the end is multiplied by 0, which must give 0.
  memory_.reset(std::calloc(
      static_cast<size_t>(Bytes(config, capacity, is_bfloat16)), 1));
  if (memory_ == nullptr) throw std::bad_alloc();
}

int64_t CpuKvCache::KeyPanel(int64_t layer, int64_t head, int64_t panel) const {
  return 2 * (layer * num_heads_ + head) * HeadNumbers(head_dim_, capacity_) +
         panel * PaddedDepth(head_dim_) * kPanelWidth;
}

int64_t CpuKvCache::ValuePanel(int64_t layer,
                               int64_t head,
                               int64_t panel) const {
  return (2 * (layer * num_heads_ + head) + 1) *
             HeadNumbers(head_dim_, capacity_) +
         panel * capacity_ * kPanelWidth;
}

void CpuKvCache::Put(int64_t panel, int64_t k, int64_t n, float value) {
  if (is_bfloat16_) {
    static_cast<uint16_t*>(
        memory_.get())[panel + (k / 2 * kPanelWidth + n) * 2 + k % 2] =
        FromFloat<BFloat16>(value).bits;
  } else {
    static_cast<float*>(memory_.get())[panel + k * kPanelWidth + n] = value;
  }
}

void CpuKvCache::Write(int64_t layer,
                       int64_t head,
                       int64_t position,
                       const float* key,
                       const float* value) {
  const int64_t keys = KeyPanel(layer, head, position / kPanelWidth);
  for (int64_t d = 0; d < head_dim_; ++d) {
    Put(keys, d, position % kPanelWidth, key[d]);
    Put(ValuePanel(layer, head, d / kPanelWidth),
        position,
        d % kPanelWidth,
        value[d]);
  }
}

void CpuKvCache::MultiplyPanel(const DecodeKernels& kernels,
                               int64_t panel,
                               const float* packed,
                               int64_t rows,
                               int64_t depth,
                               float* y,
                               int64_t stride) const {
  if (is_bfloat16_) {
    kernels.multiply_bfloat16(
        static_cast<const uint16_t*>(memory_.get()) + panel,
        packed,
        rows,
        depth,
        y,
        stride);
  } else {
    kernels.multiply_float32(static_cast<const float*>(memory_.get()) + panel,
                             packed,
                             rows,
                             depth,
                             y,
                             stride);
  }
}

void CpuKvCache::MultiplyKeys(const DecodeKernels& kernels,
                              int64_t layer,
                              int64_t head,
                              const float* packed,
                              int64_t rows,
                              int64_t length,
                              float* scores,
                              int64_t stride) const {
  for (int64_t t = 0; t < length; t += kPanelWidth) {
    MultiplyPanel(kernels,
                  KeyPanel(layer, head, t / kPanelWidth),
                  packed,
                  rows,
                  PaddedDepth(head_dim_),
                  scores + t,
                  stride);
  }
}

void CpuKvCache::MultiplyValues(const DecodeKernels& kernels,
                                int64_t layer,
                                int64_t head,
                                const float* packed,
                                int64_t rows,
                                int64_t length,
                                float* out,
                                int64_t stride) const {
  for (int64_t d = 0; d < head_dim_; d += kPanelWidth) {
    MultiplyPanel(kernels,
                  ValuePanel(layer, head, d / kPanelWidth),
                  packed,
                  rows,
                  PaddedDepth(length),
                  out + d,
                  stride);
  }
}

}  // namespace dapd
