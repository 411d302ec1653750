// The keys and values of one sequence, laid out so that attention consists of
// the same products with panels as the linear layers (decode_kernels.h):
//   scores = q K^T     keys are panels of 32 positions, head_dim deep
//   out    = p V       values are panels of 32 dimensions, positions deep
//
// Numbers are float32 or bfloat16. Addresses are reserved for the whole
// capacity, and memory is taken from the system page by page as tokens come
// (mapped_memory.h): the keys of a head and each of its panels of values begin
// on a page of their own. Not thread-safe, but rows of different heads and
// positions may be written at the same time.
#pragma once

#include <cstdint>

#include "common/generation/cpu/mapped_memory.h"
#include "common/kernels/decode_kernels.h"
#include "common/model/spec/model_config.h"

namespace dapd {

class CpuKvCache {
 public:
  // Has room for at least `capacity` tokens, in bfloat16 or float32. Throws
  // std::bad_alloc.
  CpuKvCache(const ModelConfig& config, int64_t capacity, bool is_bfloat16);

  // Returns the bytes of memory that a cache takes once it holds `tokens`
  // tokens. The capacity does not matter.
  static int64_t Bytes(const ModelConfig& config,
                       int64_t tokens,
                       bool is_bfloat16);

  int64_t length() const { return length_; }
  void Advance(int64_t tokens) { length_ += tokens; }

  // Stores a head's key and value [head_dim] for a position, rounded if the
  // cache is bfloat16.
  void Write(int64_t layer,
             int64_t head,
             int64_t position,
             const float* key,
             const float* value);

  // Computes the scores [rows, PaddedWidth(length)] for the positions before
  // `length`; the padding gets scores of later positions. `packed` holds
  // queries from pack_float32, padded to PaddedDepth(head_dim).
  void MultiplyKeys(const DecodeKernels& kernels,
                    int64_t layer,
                    int64_t head,
                    const float* packed,
                    int64_t rows,
                    int64_t length,
                    float* scores) const;
  // Computes out [rows, PaddedWidth(head_dim)]. `packed` holds probabilities
  // from pack_float32, padded to PaddedDepth(length).
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
  // Return the index of the first number of a panel of 32 positions or 32
  // dimensions.
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
