// Keys and values in 8 bits: e4m3 numbers (OCP 8-bit floating point: sign, 4
// bits of exponent, 3 of mantissa, bits as c10::Float8_e4m3fn) with one scale
// for each head of each token. A token's scale is known when the token is
// written, so no number is ever rounded a second time, and a token's bits do
// not depend on the tokens behind it; a scale of a whole page would need both.
//
// A scale is a power of two. So it costs no accuracy (a number below the
// largest has its four significant bits, down to 2^-13 of the largest), scaling
// is exact, and a scaled number is a bfloat16 number: attention over these keys
// and values is attention in bfloat16 over their rounded values, bit by bit.
#pragma once

#include <cstdint>

#include "common/kernels/bfloat16.h"
#include "common/kernels/decode_attention_math.h"

namespace dapd {

struct Float8 {
  uint8_t bits;
};

// Returns the bytes of a KV head's keys, or values, in a page.
DAPD_HOST_DEVICE inline int64_t Float8PartBytes(int64_t head_dim) {
  return kPageTokens * (head_dim + static_cast<int64_t>(sizeof(BFloat16)));
}

// Returns whether heads of this dimension have pages of Float8: rows of the
// kernels' copies are multiples of 16 bytes.
DAPD_HOST_DEVICE inline bool FitsFloat8(int64_t head_dim) {
  return head_dim % 16 == 0;
}

// Returns the scale of numbers whose largest magnitude is `largest`: the least
// power of two from 2^-126 on that brings it to at most 448, the largest
// Float8. `largest` is finite.
DAPD_HOST_DEVICE inline float Float8Scale(float largest) {
  // 448 is 1.75 * 2^8; a mantissa above 1.75 carries into the exponent.
  const auto exponent =
      static_cast<int32_t>((BitsOfFloat(largest) + 0x1FFFFFU) >> 23);
  return FloatFromBits(static_cast<uint32_t>(exponent > 9 ? exponent - 8 : 1)
                       << 23);
}

// Returns `value`, of at most 448, rounded to the nearest with ties to even.
DAPD_HOST_DEVICE inline Float8 ToFloat8(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  uint32_t rounded = 0;
  if (magnitude < 0x3C800000U) {        // below 2^-6: multiples of 2^-9
    constexpr float kUnits = 16384.0F;  // its last place is 2^-9
    rounded =
        BitsOfFloat(FloatFromBits(magnitude) + kUnits) - BitsOfFloat(kUnits);
  } else {
    rounded = ((magnitude + 0x7FFFFU + ((magnitude >> 20) & 1U)) >> 20) -
              ((127 - 7) << 3);
  }
  return {static_cast<uint8_t>((bits >> 24 & 0x80U) | rounded)};
}

// The bits of a Float8, shifted to the place of a float's, are 2^120 times too
// small.
DAPD_HOST_DEVICE inline float ToFloat(Float8 value) {
  const uint32_t bits = value.bits;
  return FloatFromBits((bits & 0x80U) << 24 | (bits & 0x7FU) << 20) *
         0x1.0p120F;
}

}  // namespace dapd
