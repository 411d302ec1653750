// The CPU's decoder for generation, over weights packed in panels. The
// reference implementation is common/model/reference/decoder.h.
//
// One pass takes rows of many sequences, prompts and single tokens mixed. Every
// row's result depends only on its own sequence, bit for bit: products keep
// their order of summation whatever other rows there are (decode_kernels.h),
// everything else is computed row by row, and a position that a row may not see
// enters its attention as an exact 0.
//
// In a bfloat16 model every value is rounded where LibTorch's operations round
// it (decoder_layer.cc), except in attention, which like LibTorch's fused
// kernel keeps scores and probabilities in float32.
//
// Shapes: N rows (tokens), H query heads, K key-value heads, D head_dim. Not
// thread-safe; computes on LibTorch's threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/generation/cpu/cpu_kv_cache.h"
#include "common/generation/cpu/cpu_linear.h"
#include "common/generation/cpu/cpu_model.h"

namespace dapd {

// The next tokens of one sequence, at positions cache->length(), ... Forward
// stores their keys and values and advances the cache.
struct TokenRun {
  CpuKvCache* cache = nullptr;
  std::span<const int32_t> ids;
};

class CpuDecoder {
 public:
  CpuDecoder(std::shared_ptr<const CpuModel> model,
             const DecodeKernels& kernels);

  // Runs one pass over all runs, whose rows follow one another. No two runs may
  // share a cache. A null `adapter` means the base.
  void Forward(const CpuAdapter* adapter, std::span<const TokenRun> runs);

  // Computes the logits of some rows of the last pass: row i of the result,
  // [vocab_size] floats, starts at i * logits_stride(). Valid until the next
  // call.
  const float* Logits(std::span<const int64_t> rows);
  int64_t logits_stride() const { return model_->head.weight.padded_outs(); }

 private:
  // The place of one row.
  struct Row {
    CpuKvCache* cache = nullptr;
    int64_t position = 0;
  };
  // Makes the rows of a pass: each row's place, embedding and angles.
  void PlaceRows(std::span<const TokenRun> runs);
  // Add a layer's outputs to the residual stream.
  void AddAttention(const CpuAdapter* adapter,
                    size_t index,
                    std::span<const TokenRun> runs);
  void AddMlp(const CpuAdapter* adapter, size_t index);
  void Normalize(const std::vector<float>& weight);
  void RotateAndStore(const CpuLayer& layer, int64_t index);
  void Attend(int64_t index, std::span<const TokenRun> runs);
  void AttendRows(int64_t index,
                  int64_t kv_head,
                  int64_t first_row,
                  int64_t num_rows);

  const std::shared_ptr<const CpuModel> model_;
  const DecodeKernels& kernels_;
  const bool round_;
  CpuMultiplier multiplier_;
  std::vector<Row> rows_;
  // The buffers have N rows each and are kept between passes.
  std::vector<float> x_;         // residual stream, [N, hidden]
  std::vector<float> norm_;      // [N, hidden]
  std::vector<float> qkv_;       // [N, padded H D + padded K D + padded K D]
  std::vector<float> attended_;  // [N, H D]
  std::vector<float> gate_up_;
  std::vector<float> gated_;  // [N, intermediate]
  std::vector<float> cos_;    // [N, D]
  std::vector<float> sin_;
  std::vector<float> logits_;
};

}  // namespace dapd
