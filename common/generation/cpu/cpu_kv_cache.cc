#include "common/generation/cpu/cpu_kv_cache.h"

#include <algorithm>

#include "common/kernels/bfloat16.h"

namespace dapd {
namespace {

// A capacity that is a multiple of this number of positions makes every part of
// a cache whole pages: one page holds so many positions of a bfloat16 panel of
// values.
constexpr int64_t kPagePositions = SparseBuffer::kPageBytes / (2 * kPanelWidth);

int64_t RoundUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Returns the numbers in the keys, or in the values, of one head in one layer.
int64_t HeadNumbers(int64_t head_dim, int64_t capacity) {
  // Keys pad the depth, values the width; both get the same room.
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
      // The memory is zeroed: numbers behind the end are multiplied by 0, and
      // the product must be 0.
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

template <typename Number>
void CpuKvCache::WriteAs(int64_t layer,
                         int64_t head,
                         int64_t position,
                         const float* key,
                         const float* value) {
  // Number of neighbours along a panel's depth that lie side by side
  // (decode_kernels.h).
  constexpr int64_t kSide = sizeof(Number) == sizeof(float) ? 1 : 2;
  constexpr int64_t kStep = kSide * kPanelWidth;
  auto* memory = static_cast<Number*>(memory_.data());
  Number* keys = memory + KeyPanel(layer, head, position / kPanelWidth) +
                 position % kPanelWidth * kSide;
  for (int64_t d = 0; d < head_dim_; ++d) {
    keys[d / kSide * kStep + d % kSide] = FromFloat<Number>(key[d]);
  }
  const int64_t row = position / kSide * kStep + position % kSide;
  for (int64_t begin = 0; begin < head_dim_; begin += kPanelWidth) {
    Number* values =
        memory + ValuePanel(layer, head, begin / kPanelWidth) + row;
    const int64_t count = std::min(kPanelWidth, head_dim_ - begin);
    for (int64_t n = 0; n < count; ++n) {
      values[n * kSide] = FromFloat<Number>(value[begin + n]);
    }
  }
}

void CpuKvCache::Write(int64_t layer,
                       int64_t head,
                       int64_t position,
                       const float* key,
                       const float* value) {
  if (is_bfloat16_) {
    WriteAs<BFloat16>(layer, head, position, key, value);
  } else {
    WriteAs<float>(layer, head, position, key, value);
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
