// Linear layers over panels: several projections of one input as one product
// (q, k, v; gate, up), with biases and an unmerged LoRA update.
//
// Why unmerged: y = x W^T + scale (x A^T) B^T keeps W in the checkpoint's
// bfloat16, whereas W + scale B A is neither representable in bfloat16
// (rounding it would change the policy) nor as small in float32. The update
// costs 4 rank (in + out) bytes of float32 beside 2 in out of weights, an
// adapter switches by packing only A and B, and the sums are those of the
// trainer (common/model/reference/lora.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/generation/cpu/cpu_matrix.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/aten.h"

namespace dapd {

// Projections of one input, fused. Biases are padded like the outputs; empty:
// none has one.
struct CpuLinear {
  CpuMatrix weight;
  std::vector<float> bias;
};

// `biases` [i] belongs to `weights` [i] and may be undefined.
CpuLinear FuseLinear(std::span<const at::Tensor> weights,
                     std::span<const at::Tensor> biases);

// The updates of the fused projections. All A are one product; each B follows
// on its own slice of that product's result.
struct CpuLora {
  float scale = 0.0F;
  CpuMatrix a;  // the targeted projections' A, [rank, in] each
  struct Update {
    CpuMatrix b;               // [out, rank]
    int64_t first_column = 0;  // of x A^T
  };
  std::vector<Update> updates;      // of the targeted projections
  std::vector<int> update_of_part;  // index into updates, -1: not targeted
};

// `pairs` by part of the CpuLinear. The memory of `recycled` is used again.
CpuLora FuseLora(std::span<const LoraPair> pairs,
                 double scale,
                 CpuLora recycled = {});

// Computes fused layers, in `round`ed (bfloat16) or full float32 arithmetic.
// Keeps the memory that it needs between calls. Not thread-safe.
class CpuMultiplier {
 public:
  CpuMultiplier(const DecodeKernels& kernels, bool round)
      : kernels_(kernels), round_(round) {}

  // out [rows, padded_outs]: the layer of x [rows, depth]. `lora` null: the
  // base.
  void Multiply(const CpuLinear& linear,
                const CpuLora* lora,
                const float* x,
                int64_t rows,
                float* out);

  // residual [rows, width] += the layer's first `width` outputs.
  void MultiplyAndAdd(const CpuLinear& linear,
                      const CpuLora* lora,
                      const float* x,
                      int64_t rows,
                      int64_t width,
                      float* residual);

 private:
  // The rows of `x`, packed for a product with `matrix`.
  const void* Pack(const CpuMatrix& matrix, const float* x, int64_t rows);
  void PackUpdates(const CpuLora& lora, const float* x, int64_t rows);
  // Where a product's rows go.
  struct Destination {
    float* rows;
    int64_t stride;
    int64_t width;      // of the layer's outputs, those that are wanted
    bool adds = false;  // to what is there
  };
  void Run(const CpuLinear& linear,
           const CpuLora* lora,
           const float* x,
           int64_t rows,
           const Destination& to);
  bool UsesDot(const CpuMatrix& matrix) const {
    return round_ && matrix.is_bfloat16() &&
           kernels_.multiply_bfloat16_dot != nullptr;
  }

  const DecodeKernels& kernels_;
  const bool round_;
  std::vector<float> packed_;                   // x
  std::vector<uint16_t> packed_pairs_;          // x
  std::vector<float> low_;                      // x A^T, [rows, padded ranks]
  std::vector<std::vector<float>> packed_low_;  // by update
};

}  // namespace dapd
