// The part of a row that a thread of the kernels of training_rows.h holds:
// vectors of consecutive numbers, loaded and stored 16 bytes at a time and held
// in pairs. One instruction multiplies or adds two pairs of bfloat16. For
// normal numbers it rounds like a float32 result that is then rounded to
// bfloat16: float32 holds such a product exactly, and what it drops
// of such a sum is too small to change the second rounding.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/kernels/bfloat16.h"

namespace dapd {

template <typename T>
struct NumberPair;
template <>
struct NumberPair<float> {
  uint32_t first_bits;
  uint32_t second_bits;
};
template <>
struct NumberPair<BFloat16> {
  uint32_t bits;  // the first in the lower half
};

__device__ inline float First(NumberPair<float> pair) {
  return FloatFromBits(pair.first_bits);
}
__device__ inline float Second(NumberPair<float> pair) {
  return FloatFromBits(pair.second_bits);
}
__device__ inline float First(NumberPair<BFloat16> pair) {
  return FloatFromBits(pair.bits << 16);
}
__device__ inline float Second(NumberPair<BFloat16> pair) {
  return FloatFromBits(pair.bits & 0xFFFF0000U);
}

template <typename T>
__device__ inline NumberPair<T> RoundedPair(float first, float second) {
  if constexpr (std::is_same_v<T, float>) {
    return {BitsOfFloat(first), BitsOfFloat(second)};
  } else {
#ifdef __CUDA_ARCH__
    return {BFloat16PairBits(/*upper=*/second, /*lower=*/first)};
#else
    return {FromFloat<T>(first).bits |
            static_cast<uint32_t>(FromFloat<T>(second).bits) << 16};
#endif
  }
}

#ifdef __CUDA_ARCH__
// Returns a * b + c of both halves, rounded once.
__device__ inline uint32_t BFloat16PairsFused(uint32_t a,
                                              uint32_t b,
                                              uint32_t c) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
#endif

// Returns a * b, rounded to T.
template <typename T>
__device__ inline NumberPair<T> Product(NumberPair<T> a, NumberPair<T> b) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, BFloat16>) {
    constexpr uint32_t kMinusZeros = 0x80008000U;
    return {BFloat16PairsFused(a.bits, b.bits, kMinusZeros)};
  }
#endif
  return RoundedPair<T>(First(a) * First(b), Second(a) * Second(b));
}

// Returns a + b, rounded to T.
template <typename T>
__device__ inline NumberPair<T> Sum(NumberPair<T> a, NumberPair<T> b) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, BFloat16>) {
    constexpr uint32_t kOnes = 0x3F803F80U;
    return {BFloat16PairsFused(a.bits, kOnes, b.bits)};
  }
#endif
  return RoundedPair<T>(First(a) + First(b), Second(a) + Second(b));
}

template <typename T>
__device__ inline NumberPair<T> Negative(NumberPair<T> a) {
  if constexpr (std::is_same_v<T, float>) {
    return RoundedPair<T>(-First(a), -Second(a));
  } else {
    return {a.bits ^ 0x80008000U};
  }
}

// Returns `sum` plus the products of the numbers of a and b.
template <typename A, typename B>
__device__ inline float AddProducts(NumberPair<A> a,
                                    NumberPair<B> b,
                                    float sum) {
  return fmaf(Second(a), Second(b), fmaf(First(a), First(b), sum));
}

// Returns an RMSNorm's result; `scale` is NormScale.
template <typename T>
__device__ inline NumberPair<T> NormalizedPair(NumberPair<T> x,
                                               float scale,
                                               NumberPair<T> weight) {
  return Product(weight, RoundedPair<T>(First(x) * scale, Second(x) * scale));
}

template <typename T, int kNumbers>
struct alignas(kNumbers * sizeof(T) < 16 ? kNumbers * sizeof(T)
                                         : 16) NumberVector {
  static constexpr int kPairs = kNumbers / 2;
  NumberPair<T> pair[kPairs];
};

#ifdef __CUDA_ARCH__
// Moves the words if `is_in`. The choice is hidden from the compiler: where it
// sees the choice, it waits for the first of several loads before it begins the
// second, and it splits a store into four.
template <int kWords>
__device__ inline void LoadWordsIf(bool is_in,
                                   const void* from,
                                   uint32_t* words) {
  static_assert(kWords == 2 || kWords == 4);
  if constexpr (kWords == 2) {
    asm volatile(
        "{\n"
        ".reg .pred is_in;\n"
        "setp.ne.s32 is_in, %2, 0;\n"
        "@is_in ld.global.v2.u32 {%0, %1}, [%3];\n"
        "}"
        : "+r"(words[0]), "+r"(words[1])
        : "r"(static_cast<int>(is_in)), "l"(from)
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred is_in;\n"
        "setp.ne.s32 is_in, %4, 0;\n"
        "@is_in ld.global.v4.u32 {%0, %1, %2, %3}, [%5];\n"
        "}"
        : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
        : "r"(static_cast<int>(is_in)), "l"(from)
        : "memory");
  }
}
template <int kWords>
__device__ inline void StoreWordsIf(bool is_in,
                                    void* to,
                                    const uint32_t* words) {
  static_assert(kWords == 2 || kWords == 4);
  if constexpr (kWords == 2) {
    asm volatile(
        "{\n"
        ".reg .pred is_in;\n"
        "setp.ne.s32 is_in, %0, 0;\n"
        "@is_in st.global.v2.u32 [%1], {%2, %3};\n"
        "}" ::"r"(static_cast<int>(is_in)),
        "l"(to),
        "r"(words[0]),
        "r"(words[1])
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred is_in;\n"
        "setp.ne.s32 is_in, %0, 0;\n"
        "@is_in st.global.v4.u32 [%1], {%2, %3, %4, %5};\n"
        "}" ::"r"(static_cast<int>(is_in)),
        "l"(to),
        "r"(words[0]),
        "r"(words[1]),
        "r"(words[2]),
        "r"(words[3])
        : "memory");
  }
}
#endif

// Sets the vector to the numbers at `from` if `is_in`, otherwise to zeros.
template <typename T, int kNumbers>
__device__ inline void LoadIf(bool is_in,
                              const T* from,
                              NumberVector<T, kNumbers>& vector) {
  vector = {};
#ifdef __CUDA_ARCH__
  constexpr int kWords = sizeof(vector) < 16 ? 2 : 4;
#pragma unroll
  for (size_t i = 0; i < sizeof(vector) / 4; i += kWords) {
    LoadWordsIf<kWords>(is_in,
                        reinterpret_cast<const uint32_t*>(from) + i,
                        reinterpret_cast<uint32_t*>(&vector) + i);
  }
#else
  if (is_in) {
    vector = *reinterpret_cast<const NumberVector<T, kNumbers>*>(from);
  }
#endif
}

template <typename T, int kNumbers>
__device__ inline void StoreIf(bool is_in,
                               T* to,
                               const NumberVector<T, kNumbers>& vector) {
#ifdef __CUDA_ARCH__
  constexpr int kWords = sizeof(vector) < 16 ? 2 : 4;
#pragma unroll
  for (size_t i = 0; i < sizeof(vector) / 4; i += kWords) {
    StoreWordsIf<kWords>(is_in,
                         reinterpret_cast<uint32_t*>(to) + i,
                         reinterpret_cast<const uint32_t*>(&vector) + i);
  }
#else
  if (is_in) *reinterpret_cast<NumberVector<T, kNumbers>*>(to) = vector;
#endif
}

}  // namespace dapd
