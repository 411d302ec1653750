// Conventions and types of the launchers of this folder. The launchers are
// plain C functions of libdapd_cuda.so, found by name (CudaSymbol), so that no
// other code needs CUDA's headers: pointers are device pointers, `stream` is a
// cudaStream_t (null: the default stream, which LibTorch uses), and the result
// is a cudaError_t (0: launched). No launcher synchronises or allocates, so all
// can be captured in a graph.
#pragma once

#include <cstdint>

namespace dapd {

// Room for an error message, where a function gives one.
inline constexpr int kCudaErrorBytes = 256;

// Bytes of device memory that a cuBLASLt product may work in.
inline constexpr int64_t kCudaProductWorkspace = int64_t{32} << 20;

// The element type T of weights, activations and KV cache.
enum class CudaNumber : int { kFloat32, kBFloat16 };

// The sequences that a launch computes. Row r of every activation belongs to
// slot slot_of_row[r]; a row with a negative slot is unused and skipped.
struct CudaRows {
  int64_t num_rows = 0;
  const int32_t* slot_of_row = nullptr;  // [num_rows]
  const int32_t* positions = nullptr;    // [slots]: of the token computed now
};

// The keys and values of one layer, in pages of kPageTokens tokens. A page
// holds all layers, [layers, 2, kv_heads, kPageTokens, head_dim], keys before
// values. With `is_float8` it holds [layers, 2, kv_heads] parts of
// Float8PartBytes, each with Float8 [kPageTokens, head_dim] and then a scale of
// every token, BFloat16 [kPageTokens] (float8.h). Pages may lie anywhere.
struct CudaKvPages {
  void* const* pages = nullptr;  // [slots, pages_per_slot], in device memory
  int64_t pages_per_slot = 0;
  int64_t layer = 0;
  bool is_float8 = false;  // only with CudaNumber::kBFloat16
};

}  // namespace dapd
