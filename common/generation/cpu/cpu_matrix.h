// Weight matrices packed in panels for the products of decoding
// (common/kernels/decode_kernels.h). They are packed once, then only read, from
// front to back.
//
// A matrix is kept in bfloat16 where that loses nothing: always for bfloat16
// models, and for float32 models whose checkpoint was bfloat16, as nearly all
// checkpoints are. The products then still compute in float32 but read half the
// bytes, and the number of bytes decides the speed of decoding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/generation/cpu/mapped_memory.h"
#include "common/kernels/decode_kernels.h"
#include "common/tensor/aten.h"

namespace dapd {

// Several [out, depth] matrices of one depth, one below the other, each padded
// with zeros to whole panels.
class CpuMatrix {
 public:
  CpuMatrix() = default;
  // `parts` are float32 or bfloat16 CPU tensors. Computes on LibTorch's
  // threads. Takes the memory of `recycled` if that has the same layout: fresh
  // memory costs more time than the packing.
  CpuMatrix(std::span<const at::Tensor> parts, CpuMatrix recycled);
  explicit CpuMatrix(std::span<const at::Tensor> parts)
      : CpuMatrix(parts, CpuMatrix()) {}

  int64_t depth() const { return depth_; }
  int64_t num_panels() const { return num_panels_; }
  // Returns num_panels * kPanelWidth, the stride of a row of results.
  int64_t padded_outs() const { return num_panels_ * kPanelWidth; }
  // Returns the first panel of a part; first_panel(number of parts) is
  // num_panels.
  int64_t first_panel(size_t part) const { return first_panels_[part]; }
  size_t PartOf(int64_t panel) const;
  bool is_bfloat16() const { return is_bfloat16_; }
  int64_t bytes() const;

  // Computes y[row * y_stride + n] for the outputs n of one panel. `packed`
  // holds the rows packed by pack_float32, or by pack_bfloat16 if `dot`, which
  // needs a bfloat16 matrix and a processor that supports it; the rows are
  // padded to packed_depth().
  void MultiplyPanel(const DecodeKernels& kernels,
                     int64_t panel,
                     const void* packed,
                     bool dot,
                     int64_t rows,
                     float* y,
                     int64_t y_stride) const;
  int64_t packed_depth() const { return (depth_ + 1) / 2 * 2; }

  // Writes output `out` of the first part as a row of `depth` floats; it serves
  // embeddings.
  void CopyRow(int64_t out, float* row) const;

 private:
  // Packs panel `from` of the matrix `matrix` into panel `to` of all parts.
  void PackPanel(const DecodeKernels& kernels,
                 const at::Tensor& matrix,
                 int64_t from,
                 int64_t to);

  int64_t depth_ = 0;
  int64_t num_panels_ = 0;
  bool is_bfloat16_ = false;
  std::vector<int64_t> outs_;  // by part
  std::vector<int64_t> first_panels_;
  HugeBuffer data_;
};

}  // namespace dapd
