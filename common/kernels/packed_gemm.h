// C = A B on the CPU, of float32 and bfloat16 in any mixture, summed in
// float32. It serves the LM head, which multiplies a few hundred rows with a
// matrix of hundreds of megabytes that is not copied, and the projections and
// attention of a training pass.
//
// It follows Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008): A is packed once per block of k, B panel by panel,
// and a tile of C stays in registers. Bfloat16 is widened while it is packed,
// so no float32 copy of an operand exists, and a bfloat16 C is rounded once.
// Packing costs as much as multiplying by 8 columns, so a float32 A is read in
// place if the cache can hold its lines.
//
// Machines with dot products of bfloat16 pairs, or with tiles of them (AMX),
// multiply a bfloat16 B without widening it and round a float32 A to bfloat16.
// This does not apply where A is transposed or B is float32: the products of
// low-rank updates and of their gradients stay exact.
//
// The order in which an element of C is summed depends on k only: neither the
// number of threads nor the other rows and columns change a bit.
#pragma once

#include <cstdint>

namespace dapd {

// Row-major; strides in elements.
struct GemmOperands {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const void* a = nullptr;  // [m, k], or [k, m] if a_is_transposed
  int64_t a_stride = 0;
  bool a_is_bfloat16 = false;
  bool a_is_transposed = false;
  const void* b = nullptr;  // [k, n], or [n, k] if b_is_transposed
  int64_t b_stride = 0;
  bool b_is_bfloat16 = false;
  bool b_is_transposed = false;
  void* c = nullptr;  // [m, n]
  int64_t c_stride = 0;
  bool c_is_bfloat16 = false;
  bool adds = false;  // C += A B; otherwise C is overwritten
};

// Computes C on up to `num_threads` threads.
void PackedGemm(const GemmOperands& operands, int num_threads);

}  // namespace dapd
