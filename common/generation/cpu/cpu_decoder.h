// The decoder of the CPU, over weights packed in panels, for decoding; the
// reference implementation is common/model/reference/decoder.h.
//
// One pass takes rows of many sequences, prompts and single tokens mixed, and
// every row's result depends only on its own sequence, bit for bit: products
// keep their order of summation whatever the rows beside (decode_kernels.h),
// all else is computed row by row, and a position that a row may not see enters
// its attention as an exact 0.
//
// In a bfloat16 model every value is rounded where LibTorch's operations round
// it (decoder_layer.cc), attention excepted, which like LibTorch's fused kernel
// keeps scores and probabilities in float32.
//
// Shapes: N rows (tokens), H query heads, K key-value heads, D head_dim.
// Not thread-safe; computes on LibTorch's threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/generation/cpu/cpu_kv_cache.h"
#include "common/generation/cpu/cpu_linear.h"
#include "common/generation/cpu/cpu_model.h"

namespace dapd {

// The next tokens of one sequence: at positions cache->length(), ... Forward
// stores their keys and values and advances the cache.
struct TokenRun {
  CpuKvCache* cache = nullptr;
  std::span<const int32_t> ids;
};

class CpuDecoder {
 public:
  CpuDecoder(std::shared_ptr<const CpuModel> model,
             const DecodeKernels& kernels);

  // One pass over all runs (no cache twice); their rows follow one another.
  // `adapter` null: the base.
  void Forward(const CpuAdapter* adapter, std::span<const TokenRun> runs);

  // Logits of some rows of the last pass: row i of the result, [vocab_size]
  // floats, starts at i * logits_stride(). Valid until the next call.
  const float* Logits(std::span<const int64_t> rows);
  int64_t logits_stride() const { return model_->head.weight.padded_outs(); }

 private:
  // Where one row stands.
  struct Row {
    CpuKvCache* cache = nullptr;
    int64_t position = 0;
  };
  // Makes the rows of a pass: where each stands, its embedding and its angles.
  void PlaceRows(std::span<const TokenRun> runs);
  // What a layer adds to the residual stream.
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
  // [N, ...] each, kept between passes.
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
