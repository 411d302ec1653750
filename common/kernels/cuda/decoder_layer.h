// The element-wise kernels of a decoder layer that computes one new token for
// each of a few sequences (decode_layer_math.h has the mathematics, launch.h
// the conventions). All sizes are multiples of 8. The launch in front of a
// kernel must not write the kernel's weights, angles, slots or positions.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// The largest number of entries in a row of the residual stream.
inline constexpr int64_t kMaxDecodeHidden = 16384;

// Computes x[r] = embedding[tokens[slot of r]].
struct EmbeddingArgs {
  CudaRows rows;
  const int32_t* tokens = nullptr;  // [slots]
  const void* embedding = nullptr;  // [vocab, hidden]
  void* x = nullptr;                // [rows, hidden]
  int64_t hidden = 0;
};

// Computes x += delta + bias; out = RMSNorm(x) * weight. With null `delta` and
// `parts`, x stays as it is. `parts` are summands of a delta that several ranks
// computed together; they are added in this order and rounded once to T.
struct ResidualNormArgs {
  int64_t num_rows = 0;
  void* x = nullptr;             // [rows, hidden], the residual stream
  const void* delta = nullptr;   // [rows, hidden] or null
  const float* parts = nullptr;  // [num_parts, rows, hidden] or null
  int64_t num_parts = 0;
  const void* bias = nullptr;    // [hidden] or null
  const void* weight = nullptr;  // [hidden]
  void* out = nullptr;  // [rows, out_stride], the first `hidden` columns
  int64_t hidden = 0;   // up to kMaxDecodeHidden
  int64_t out_stride = 0;
  float eps = 0.0F;
};

// Computes for each row's q, k and v: the bias, RMSNorm of each head of q and
// k, and the rotary embedding. q stays in place; k and v go to the row's slot
// of the KV cache.
struct QkvArgs {
  CudaRows rows;
  void* qkv = nullptr;           // [rows, (heads + 2 kv_heads) head_dim]
  const void* bias = nullptr;    // as one row of qkv, or null
  const void* q_norm = nullptr;  // [head_dim], or null: no norm
  const void* k_norm = nullptr;  // [head_dim]
  const void* cosine = nullptr;  // [positions, head_dim] (rope.h)
  const void* sine = nullptr;    // [positions, head_dim]
  CudaKvPages cache;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // up to kMaxHeadDim
  float eps = 0.0F;
};

// Computes out = silu(gate) * up.
struct SwiGluArgs {
  int64_t num_rows = 0;
  const void* gate_up = nullptr;  // [rows, 2 intermediate]: gate, then up
  const void* bias = nullptr;     // [2 intermediate] or null
  void* out = nullptr;            // [rows, out_stride], the first columns
  int64_t intermediate = 0;
  int64_t out_stride = 0;
};

extern "C" {
int DapdCudaEmbedding(const EmbeddingArgs* args,
                      CudaNumber number,
                      void* stream);
int DapdCudaResidualNorm(const ResidualNormArgs* args,
                         CudaNumber number,
                         void* stream);
int DapdCudaQkv(const QkvArgs* args, CudaNumber number, void* stream);
int DapdCudaSwiGlu(const SwiGluArgs* args, CudaNumber number, void* stream);
}

}  // namespace dapd
