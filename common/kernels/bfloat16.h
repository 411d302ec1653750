// bfloat16 as the CPU and GPU kernels share it: the upper half of a float32,
// without the headers of CUDA or LibTorch. Bits, rounding and layout equal
// those of c10::BFloat16 and __nv_bfloat16, so pointers may be reinterpreted.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/kernels/host_device.h"

namespace dapd {

struct BFloat16 {
  uint16_t bits;
};

DAPD_HOST_DEVICE inline float FloatFromBits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

DAPD_HOST_DEVICE inline uint32_t BitsOfFloat(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

DAPD_HOST_DEVICE inline float ToFloat(float value) { return value; }
DAPD_HOST_DEVICE inline float ToFloat(BFloat16 value) {
  return FloatFromBits(static_cast<uint32_t>(value.bits) << 16);
}

#ifdef __CUDA_ARCH__
// Returns two numbers as bfloat16. The instruction that converts a single
// number takes four times as long.
__device__ inline uint32_t BFloat16PairBits(float upper, float lower) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(upper), "f"(lower));
  return bits;
}
#endif

// Returns `value` as T, rounded to the nearest with ties to even; a NaN stays a
// NaN.
template <typename T>
DAPD_HOST_DEVICE inline T FromFloat(float value);

template <>
DAPD_HOST_DEVICE inline float FromFloat<float>(float value) {
  return value;
}

template <>
DAPD_HOST_DEVICE inline BFloat16 FromFloat<BFloat16>(float value) {
#ifdef __CUDA_ARCH__
  return {static_cast<uint16_t>(BFloat16PairBits(0.0F, value))};
#else
  const uint32_t bits = BitsOfFloat(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FC0};
  return {static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
#endif
}

// Returns `value` rounded to T and widened again.
template <typename T>
DAPD_HOST_DEVICE inline float RoundedTo(float value) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, BFloat16>) {
    return FloatFromBits(BFloat16PairBits(value, 0.0F));
  }
#endif
  return ToFloat(FromFloat<T>(value));
}

}  // namespace dapd
