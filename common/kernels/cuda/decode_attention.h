// Split-KV decode attention for grouped-query heads: one new token per row over
// the row's slot of the KV cache, in one launch (decode_attention_math.h has
// the arithmetic and its order, launch.h the conventions). The blocks read
// every key and value once for all query heads that share them; the last block
// of a row's KV head combines the splits in their order. There are as many
// blocks as the device has room for, and they divide the pages among
// themselves: one captured graph serves every length up to `max_tokens`, and
// the time of a launch follows the total length of its rows.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

struct DecodeAttentionArgs {
  CudaRows rows;
  // The query heads of row r are the first heads * head_dim numbers of q + r *
  // q_stride.
  const void* q = nullptr;
  CudaKvPages cache;    // holds the position that is computed and all before it
  void* out = nullptr;  // [rows, out_stride], the first columns
  // [DapdCudaDecodeAttentionScratch], shared by all layers.
  float* scratch = nullptr;
  // [rows, kv_heads]: counts the blocks that are done with a row. All counters
  // are 0 before a launch and after it.
  uint32_t* counters = nullptr;
  int64_t q_stride = 0;
  int64_t out_stride = 0;
  int64_t heads = 0;  // FitsDecodeAttention
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_tokens = 0;  // no row is longer; at most kMaxPages pages
};

extern "C" {
// Returns the floats of scratch (DecodeAttentionScratch in
// decode_attention_math.h).
int64_t DapdCudaDecodeAttentionScratch(int64_t rows,
                                       int64_t heads,
                                       int64_t head_dim,
                                       int64_t max_tokens);
int DapdCudaDecodeAttention(const DecodeAttentionArgs* args,
                            CudaNumber number,
                            void* stream);
}

}  // namespace dapd
