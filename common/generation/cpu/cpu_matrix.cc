#include "common/generation/cpu/cpu_matrix.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "common/kernels/bfloat16.h"
#include "common/kernels/parallel_for.h"

namespace dapd {
namespace {

int64_t PanelsOf(int64_t outs) {
  return (outs + kPanelWidth - 1) / kPanelWidth;
}

// Returns whether all numbers are bfloat16 values, whatever type stores them.
bool FitsBFloat16(const at::Tensor& matrix) {
  if (matrix.scalar_type() == at::kBFloat16) return true;
  const float* values = matrix.const_data_ptr<float>();
  const int64_t width = matrix.size(1);
  std::atomic<bool> fits = true;
  ParallelFor(at::get_num_threads(), matrix.size(0), [&](int64_t row) {
    if (!fits.load(std::memory_order_relaxed)) return;
    uint32_t lower = 0;
    for (int64_t k = 0; k < width; ++k) {
      lower |= std::bit_cast<uint32_t>(values[row * width + k]) & 0xFFFFU;
    }
    if (lower != 0) fits = false;
  });
  return fits;
}

}  // namespace

CpuMatrix::CpuMatrix(std::span<const at::Tensor> parts, CpuMatrix recycled) {
  std::vector<at::Tensor> matrices;
  depth_ = parts[0].size(1);
  is_bfloat16_ = true;
  for (const at::Tensor& part : parts) {
    TORCH_CHECK(part.size(1) == depth_,
                "[panels] matrices of depth ",
                depth_,
                " and ",
                part.size(1),
                " cannot be multiplied at once");
    matrices.push_back(part.contiguous());
    is_bfloat16_ = is_bfloat16_ && FitsBFloat16(matrices.back());
    outs_.push_back(part.size(0));
    first_panels_.push_back(num_panels_);
    num_panels_ += PanelsOf(part.size(0));
  }
  first_panels_.push_back(num_panels_);
  data_ = recycled.is_bfloat16_ == is_bfloat16_ && recycled.depth_ == depth_ &&
                  recycled.outs_ == outs_
              ? std::move(recycled.data_)
              : HugeBuffer(bytes());
  const DecodeKernels& kernels = DecodeKernelsOf(CpuLevelInUse());
  for (size_t part = 0; part < matrices.size(); ++part) {
    const at::Tensor& matrix = matrices[part];
    const int64_t first = first_panels_[part];
    ParallelFor(
        at::get_num_threads(), PanelsOf(matrix.size(0)), [&](int64_t panel) {
          PackPanel(kernels, matrix, panel, first + panel);
        });
  }
}

void CpuMatrix::PackPanel(const DecodeKernels& kernels,
                          const at::Tensor& matrix,
                          int64_t from,
                          int64_t to) {
  const int64_t begin = from * kPanelWidth;
  const int64_t count = std::min(kPanelWidth, matrix.size(0) - begin);
  if (!is_bfloat16_) {
    kernels.pack_float32_panel(
        matrix.const_data_ptr<float>() + begin * depth_,
        count,
        depth_,
        static_cast<float*>(data_.data()) + to * depth_ * kPanelWidth);
    return;
  }
  uint16_t* panel =
      static_cast<uint16_t*>(data_.data()) + to * packed_depth() * kPanelWidth;
  if (matrix.scalar_type() == at::kBFloat16) {
    kernels.pack_bfloat16_panel(
        static_cast<const BFloat16*>(matrix.const_data_ptr()) + begin * depth_,
        count,
        depth_,
        panel);
  } else {
    kernels.pack_upper_halves_panel(
        matrix.const_data_ptr<float>() + begin * depth_, count, depth_, panel);
  }
}

size_t CpuMatrix::PartOf(int64_t panel) const {
  size_t part = 0;
  while (first_panels_[part + 1] <= panel) ++part;
  return part;
}

int64_t CpuMatrix::bytes() const {
  return padded_outs() * (is_bfloat16_ ? packed_depth() * 2 : depth_ * 4);
}

void CpuMatrix::MultiplyPanel(const DecodeKernels& kernels,
                              int64_t panel,
                              const void* packed,
                              bool dot,
                              int64_t rows,
                              float* y,
                              int64_t y_stride) const {
  if (!is_bfloat16_) {
    kernels.multiply_float32(
        static_cast<const float*>(data_.data()) + panel * depth_ * kPanelWidth,
        static_cast<const float*>(packed),
        rows,
        depth_,
        y,
        y_stride);
    return;
  }
  const uint16_t* weights = static_cast<const uint16_t*>(data_.data()) +
                            panel * packed_depth() * kPanelWidth;
  if (dot) {
    kernels.multiply_bfloat16_dot(weights,
                                  static_cast<const uint16_t*>(packed),
                                  rows,
                                  packed_depth(),
                                  y,
                                  y_stride);
  } else {
    kernels.multiply_bfloat16(weights,
                              static_cast<const float*>(packed),
                              rows,
                              packed_depth(),
                              y,
                              y_stride);
  }
}

void CpuMatrix::CopyRow(int64_t out, float* row) const {
  const int64_t panel = out / kPanelWidth;
  const int64_t n = out % kPanelWidth;
  if (is_bfloat16_) {
    const uint16_t* values = static_cast<const uint16_t*>(data_.data()) +
                             panel * packed_depth() * kPanelWidth;
    for (int64_t k = 0; k < depth_; ++k) {
      row[k] = ToFloat(BFloat16{values[(k / 2 * kPanelWidth + n) * 2 + k % 2]});
    }
  } else {
    const float* values =
        static_cast<const float*>(data_.data()) + panel * depth_ * kPanelWidth;
    for (int64_t k = 0; k < depth_; ++k) row[k] = values[k * kPanelWidth + n];
  }
}

}  // namespace dapd
