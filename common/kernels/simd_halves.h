// Reads and writes rows of bfloat16 as vectors of float32. Like simd.h, only
// sources that are compiled once per CPU level may include it.
#pragma once

#include "common/kernels/bfloat16.h"
#include "common/kernels/simd.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {

typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));

// Loads kLanes bfloat16, each into the lower half of a word.
inline Words LoadHalves(const BFloat16* from) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  return __builtin_convertvector(halves, Words);
}

inline Floats LoadAll(const float* from) { return Load<Floats>(from); }
inline Floats LoadAll(const BFloat16* from) {
  return reinterpret_cast<Floats>(LoadHalves(from) << 16);
}

inline void StoreAll(const Floats& vector, float* to) { Store(vector, to); }
inline void StoreAll(const Floats& vector, BFloat16* to) {
  const Words rounded = reinterpret_cast<Words>(RoundToBFloat16(vector));
  const Halves halves = __builtin_convertvector(rounded >> 16, Halves);
  __builtin_memcpy(to, &halves, sizeof(halves));
}

inline Floats LoadPart(const BFloat16* from, int64_t count, float fill) {
  if (count >= kLanes) return LoadAll(from);
  Floats vector = Floats{} + fill;
  for (int64_t i = 0; i < count; ++i) vector[i] = ToFloat(from[i]);
  return vector;
}

inline void StorePart(const Floats& vector, int64_t count, BFloat16* to) {
  if (count >= kLanes) return StoreAll(vector, to);
  for (int64_t i = 0; i < count; ++i) to[i] = FromFloat<BFloat16>(vector[i]);
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
