// Split-KV decode attention for grouped-query heads (decode_attention_math.h
// has the arithmetic and its order, launch.h the conventions): one new token a
// row over the row's slot of the KV cache, in one launch. Its blocks read every
// key and value once, for all query heads that share them; the last block of a
// row's KV head combines the splits, in their order. A page is a split. There
// are as many blocks as the device has room for, which share what splits there
// are: one captured graph serves every length up to `max_tokens`, and a launch
// costs what its rows are long together.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

struct DecodeAttentionArgs {
  CudaRows rows;
  // Row r's query heads are the first heads * head_dim of q + r * q_stride.
  const void* q = nullptr;
  CudaKvPages cache;    // written up to and with the position that is computed
  void* out = nullptr;  // [rows, out_stride], the first columns
  // DapdCudaDecodeAttentionScratch floats, shared by all layers.
  float* scratch = nullptr;
  // [rows, kv_heads]: counts the blocks that are done with a row. All 0 before
  // a launch, and after it.
  uint32_t* counters = nullptr;
  int64_t q_stride = 0;
  int64_t out_stride = 0;
  int64_t heads = 0;  // FitsDecodeAttention
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_tokens = 0;  // no row is longer; at most kMaxSplits splits
};

extern "C" {
// Floats of scratch, as DecodeAttentionScratch (decode_attention_math.h).
int64_t DapdCudaDecodeAttentionScratch(int64_t rows,
                                       int64_t heads,
                                       int64_t head_dim,
                                       int64_t max_tokens);
int DapdCudaDecodeAttention(const DecodeAttentionArgs* args,
                            CudaNumber number,
                            void* stream);
}

}  // namespace dapd
