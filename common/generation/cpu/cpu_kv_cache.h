// The keys and values of one sequence, laid out so that attention is made of
// the same products with panels as the linear layers (decode_kernels.h):
//   scores = q K^T     keys are panels of 32 positions, head_dim deep
//   out    = p V       values are panels of 32 dimensions, positions deep
//
// In float32 or bfloat16. Addresses are set aside for the whole capacity, and
// memory is taken from the system page by page as tokens come
// (mapped_memory.h): a head's keys and each of its panels of values begin on a
// page of their own and grow from there. Not thread-safe, but rows of different
// heads and positions may be written at the same time.
#pragma once

#include <cstdint>

#include "common/generation/cpu/mapped_memory.h"
#include "common/kernels/decode_kernels.h"
#include "common/model/spec/model_config.h"

namespace dapd {

class CpuKvCache {
 public:
  // Room for at least `capacity` tokens; bfloat16 or float32 numbers. Throws
  // std::bad_alloc.
  CpuKvCache(const ModelConfig& config, int64_t capacity, bool is_bfloat16);

  // Bytes of memory that a cache has taken once it holds `tokens`, whatever its
  // capacity.
  static int64_t Bytes(const ModelConfig& config,
                       int64_t tokens,
                       bool is_bfloat16);

  int64_t length() const { return length_; }
  void Advance(int64_t tokens) { length_ += tokens; }

  // Stores a head's key and value [head_dim] of a position. In bfloat16 they
  // are rounded.
  void Write(int64_t layer,
             int64_t head,
             int64_t position,
             const float* key,
             const float* value);

  // scores [rows, PaddedWidth(length)] of the positions before `length`, and of
  // some after. `packed`: queries by pack_float32, padded to
  // PaddedDepth(head_dim).
  void MultiplyKeys(const DecodeKernels& kernels,
                    int64_t layer,
                    int64_t head,
                    const float* packed,
                    int64_t rows,
                    int64_t length,
                    float* scores) const;
  // out [rows, PaddedWidth(head_dim)]. `packed`: probabilities by pack_float32,
  // padded to PaddedDepth(length).
  void MultiplyValues(const DecodeKernels& kernels,
                      int64_t layer,
                      int64_t head,
                      const float* packed,
                      int64_t rows,
                      int64_t length,
                      float* out) const;

  static int64_t PaddedDepth(int64_t depth) { return (depth + 1) / 2 * 2; }
  static int64_t PaddedWidth(int64_t width) {
    return (width + kPanelWidth - 1) / kPanelWidth * kPanelWidth;
  }

 private:
  // Index of the first number of a panel of 32 positions, or of dimensions.
  int64_t KeyPanel(int64_t layer, int64_t head, int64_t panel) const;
  int64_t ValuePanel(int64_t layer, int64_t head, int64_t panel) const;
  template <typename Number>
  void WriteAs(int64_t layer,
               int64_t head,
               int64_t position,
               const float* key,
               const float* value);
  void MultiplyPanel(const DecodeKernels& kernels,
                     int64_t panel,
                     const float* packed,
                     int64_t rows,
                     int64_t depth,
                     float* y,
                     int64_t stride) const;

  int64_t num_heads_;
  int64_t head_dim_;
  int64_t capacity_;  // whole pages of every panel of values
  bool is_bfloat16_;
  int64_t length_ = 0;
  SparseBuffer memory_;
};

}  // namespace dapd
