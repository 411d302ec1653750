// The arithmetic of decoding on a CPU: matrix products with few rows, and the
// element-wise work between them. Everything is float32 in registers; weights
// and KV memory are float32 or bfloat16 in memory.
//
// Panels. A matrix W [outs, depth] that x [rows, depth] is multiplied with (y =
// x W^T) is stored as panels of kPanelWidth outputs:
//   float32   panel[k][n]           32 outputs of one k side by side
//   bfloat16  panel[k / 2][n][k % 2]  pairs of k, as the dot product wants them
// A product then reads each panel once, as one stream. Outputs are padded with
// zeros to whole panels, and the depth of bfloat16 to an even number.
//
// Rows go through a product in groups, and the x of a group is laid out for the
// level's product (`pack_*`): rows that one level packed do not fit another
// level's product.
//
// Every output is one chain of multiply-adds over k in rising order, or with
// AMX one chain over sums of 32 products each. The number of rows, their
// grouping and the blocking do not change it, so a row's bits do not depend on
// its neighbours. They do depend on the CpuLevel.
//
// Pointers need no alignment. Thread-safe: nothing here has state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/kernels/bfloat16.h"
#include "common/kernels/cpu_features.h"

namespace dapd {

inline constexpr int64_t kPanelWidth = 32;
// The number of logits for which chunk_maxima gives one maximum.
inline constexpr int64_t kMaximaChunk = 64;

// Rows of a product with summands, `size` numbers of each row:
//   out = y + bias + scale * update + residual
// in this order. A null pointer leaves its summand out. `round` is explained
// below.
struct CombinedRows {
  int64_t rows = 1;
  int64_t size = 0;
  const float* y = nullptr;
  int64_t y_stride = 0;
  const float* bias = nullptr;  // for every row
  const float* update = nullptr;
  int64_t update_stride = 0;
  float scale = 0.0F;
  const float* residual = nullptr;  // may be `out`, and has its stride
  bool round = false;
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct DecodeKernels {
  // --- panels
  // Packs a panel of `count` outputs, the rows of a matrix [count, depth];
  // missing outputs up to kPanelWidth become zero. All levels give the same
  // bits.
  void (*pack_float32_panel)(const float* rows,
                             int64_t count,
                             int64_t depth,
                             float* panel);
  void (*pack_bfloat16_panel)(const BFloat16* rows,
                              int64_t count,
                              int64_t depth,
                              uint16_t* panel);
  // Packs floats that hold bfloat16 values: the lower half of each is zero.
  void (*pack_upper_halves_panel)(const float* rows,
                                  int64_t count,
                                  int64_t depth,
                                  uint16_t* panel);

  // --- products with panels
  // Packs x [rows, depth], rows `stride` apart, into groups of floats or of
  // bfloat16 pairs (x is rounded, without loss if it holds bfloat16 values).
  // `padded` >= depth must be even for pairs; zeros fill the rest. `out` has
  // room for rows * padded numbers.
  void (*pack_float32)(const float* x,
                       int64_t stride,
                       int64_t rows,
                       int64_t depth,
                       int64_t padded,
                       float* out);
  void (*pack_bfloat16)(const float* x,
                        int64_t stride,
                        int64_t rows,
                        int64_t depth,
                        int64_t padded,
                        uint16_t* out);

  // Computes y[row * y_stride + n] = sum_k x[row][k] panel[k][n] for n <
  // kPanelWidth.
  void (*multiply_float32)(const float* panel,
                           const float* packed,
                           int64_t rows,
                           int64_t depth,
                           float* y,
                           int64_t y_stride);
  // The panels are bfloat16, whose numbers are widened exactly. `depth` is
  // even.
  void (*multiply_bfloat16)(const uint16_t* panel,
                            const float* packed,
                            int64_t rows,
                            int64_t depth,
                            float* y,
                            int64_t y_stride);
  // x is packed as bfloat16 pairs, too. It sums like the instruction VDPBF16PS,
  // or like AMX's TDPBF16PS, which needs `packed` and y at the start of cache
  // lines for its full speed. Null where the processor has neither.
  void (*multiply_bfloat16_dot)(const uint16_t* panel,
                                const uint16_t* packed,
                                int64_t rows,
                                int64_t depth,
                                float* y,
                                int64_t y_stride);

  // --- rows
  // With `round`, results are rounded to bfloat16, and so are the intermediates
  // that LibTorch's bfloat16 operations round (decoder_layer.cc, rope.cc).

  // Computes out = weight * (x / sqrt(mean(x^2) + eps)).
  void (*rms_norm)(const float* x,
                   const float* weight,
                   int64_t size,
                   float eps,
                   bool round,
                   float* out);
  // Rotates a head [size] in place: element i turns with element i + size / 2.
  // cos, sin [size].
  void (*rotate)(float* head,
                 const float* cos,
                 const float* sin,
                 int64_t size,
                 bool round);
  // Computes out = silu(gate) * up.
  void (*gated)(
      const float* gate, const float* up, int64_t size, bool round, float* out);
  void (*combine)(const CombinedRows& rows);
  // Computes softmax(scale * scores) of the first `length` scores and writes
  // zeros up to `padded`.
  void (*softmax)(float* scores, int64_t length, int64_t padded, float scale);

  // --- the vocabulary
  // Writes maxima[i] of each chunk of kMaximaChunk logits. Returns false if a
  // logit is not finite.
  bool (*chunk_maxima)(const float* logits, int64_t size, float* maxima);
  // Returns sum_i exp(logits[i] - largest) with a relative error of about 1e-7.
  double (*sum_exp)(const float* logits, int64_t size, float largest);
};

// Returns the kernels of a level, which this machine must have.
const DecodeKernels& DecodeKernelsOf(CpuLevel level);

}  // namespace dapd
