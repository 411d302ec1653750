// Linear layers over panels: several projections of one input are one product
// (q, k, v; gate, up), with biases and an unmerged LoRA update.
//
// The update is not merged into W because y = x W^T + scale (x A^T) B^T keeps W
// in the checkpoint's bfloat16. W + scale B A cannot be represented in bfloat16
// (rounding it would change the policy) and takes more memory in float32. The
// update takes 4 rank (in + out) bytes of float32 beside 2 in out bytes of
// weights, a change of the adapter packs only A and B, and the sums equal those
// of the trainer (common/model/reference/lora.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/generation/cpu/cpu_matrix.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/aten.h"

namespace dapd {

// Fused projections of one input. Biases are padded like the outputs; an empty
// vector says that no projection has one.
struct CpuLinear {
  CpuMatrix weight;
  std::vector<float> bias;
};

// `biases`[i] belongs to `weights`[i] and may be undefined.
CpuLinear FuseLinear(std::span<const at::Tensor> weights,
                     std::span<const at::Tensor> biases);

// The updates of the fused projections. All A are one product; each B then
// multiplies its own columns of that product's result.
struct CpuLora {
  float scale = 0.0F;
  CpuMatrix a;  // A of the targeted projections, [rank, in] each
  struct Update {
    CpuMatrix b;               // [out, rank]
    int64_t first_column = 0;  // of x A^T
  };
  std::vector<Update> updates;      // one per targeted projection
  std::vector<int> update_of_part;  // index into updates, -1: not targeted
};

// `pairs` has one entry per part of the CpuLinear. The memory of `recycled` is
// reused.
CpuLora FuseLora(std::span<const LoraPair> pairs,
                 double scale,
                 CpuLora recycled = {});

// Computes fused layers, with rounding to bfloat16 if `round`, otherwise in
// full float32. It keeps its memory between calls. Not thread-safe.
class CpuMultiplier {
 public:
  CpuMultiplier(const DecodeKernels& kernels, bool round)
      : kernels_(kernels), round_(round) {}

  // Computes out [rows, padded_outs], the layer's outputs for x [rows, depth].
  // A null `lora` means the base.
  void Multiply(const CpuLinear& linear,
                const CpuLora* lora,
                const float* x,
                int64_t rows,
                float* out);

  // Computes residual [rows, width] += the layer's first `width` outputs.
  void MultiplyAndAdd(const CpuLinear& linear,
                      const CpuLora* lora,
                      const float* x,
                      int64_t rows,
                      int64_t width,
                      float* residual);

 private:
  // Packs the rows of `x` for a product with `matrix`.
  const void* Pack(const CpuMatrix& matrix, const float* x, int64_t rows);
  void PackUpdates(const CpuLora& lora, const float* x, int64_t rows);
  // The memory that a product's rows go to.
  struct Destination {
    float* rows;
    int64_t stride;
    int64_t width;      // number of the layer's outputs that are needed
    bool adds = false;  // adds to what is there; otherwise overwrites it
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
