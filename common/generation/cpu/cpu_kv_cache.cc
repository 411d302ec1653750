#include "common/generation/cpu/cpu_kv_cache.h"

#include "common/kernels/bfloat16.h"

namespace dapd {
namespace {

// Positions by which all parts of a cache are whole pages: those of a panel of
// values in bfloat16 that fill one.
constexpr int64_t kPagePositions = SparseBuffer::kPageBytes / (2 * kPanelWidth);

int64_t RoundUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Numbers of the keys, or the values, of one head in one layer.
int64_t HeadNumbers(int64_t head_dim, int64_t capacity) {
  // Keys pad the depth, values the width; the same room for both.
  return CpuKvCache::PaddedWidth(head_dim) * capacity;
}

int64_t BytesOfNumber(bool is_bfloat16) { return is_bfloat16 ? 2 : 4; }

}  // namespace

int64_t CpuKvCache::Bytes(const ModelConfig& config,
                          int64_t tokens,
                          bool is_bfloat16) {
  const auto pages = [&](int64_t numbers) {
    return RoundUp(numbers * BytesOfNumber(is_bfloat16),
                   SparseBuffer::kPageBytes);
  };
  const int64_t keys =
      pages(PaddedDepth(config.head_dim) * PaddedWidth(tokens));
  const int64_t panel = pages(PaddedDepth(tokens) * kPanelWidth);
  const int64_t panels = PaddedWidth(config.head_dim) / kPanelWidth;
  return config.num_layers * config.num_kv_heads * (keys + panels * panel);
}

CpuKvCache::CpuKvCache(const ModelConfig& config,
                       int64_t capacity,
                       bool is_bfloat16)
    : num_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      capacity_(RoundUp(capacity, kPagePositions)),
      is_bfloat16_(is_bfloat16),
      // Zeros: what lies past the end is multiplied by 0, which must give 0.
      memory_(2 * config.num_layers * num_heads_ *
              HeadNumbers(head_dim_, capacity_) * BytesOfNumber(is_bfloat16)) {}

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
        memory_.data())[panel + (k / 2 * kPanelWidth + n) * 2 + k % 2] =
        FromFloat<BFloat16>(value).bits;
  } else {
    static_cast<float*>(memory_.data())[panel + k * kPanelWidth + n] = value;
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
        static_cast<const uint16_t*>(memory_.data()) + panel,
        packed,
        rows,
        depth,
        y,
        stride);
  } else {
    kernels.multiply_float32(static_cast<const float*>(memory_.data()) + panel,
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
                              float* scores) const {
  for (int64_t t = 0; t < length; t += kPanelWidth) {
    MultiplyPanel(kernels,
                  KeyPanel(layer, head, t / kPanelWidth),
                  packed,
                  rows,
                  PaddedDepth(head_dim_),
                  scores + t,
                  PaddedWidth(length));
  }
}

void CpuKvCache::MultiplyValues(const DecodeKernels& kernels,
                                int64_t layer,
                                int64_t head,
                                const float* packed,
                                int64_t rows,
                                int64_t length,
                                float* out) const {
  for (int64_t d = 0; d < head_dim_; d += kPanelWidth) {
    MultiplyPanel(kernels,
                  ValuePanel(layer, head, d / kPanelWidth),
                  packed,
                  rows,
                  PaddedDepth(length),
                  out + d,
                  PaddedWidth(head_dim_));
  }
}

}  // namespace dapd
