#include "common/base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace dapd {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78U;  // reflected

// Returns `state` (not inverted, unlike a checksum) after one more byte.
uint32_t StepByTable(uint32_t state, uint8_t byte) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) {
        crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0U);
      }
      entries[i] = crc;
    }
    return entries;
  }();
  return table[(state ^ byte) & 0xff] ^ (state >> 8);
}

#if defined(__x86_64__)

// The instruction takes 8 bytes a cycle but answers after three: three streams
// of this length keep it busy.
constexpr size_t kLane = 4096;

// The effect of kLane zero bytes on a state. It is linear in the bits of the
// state, so four tables, one per byte, describe it.
class LaneShift {
 public:
  LaneShift() {
    std::array<uint32_t, 32> columns;
    for (size_t bit = 0; bit < 32; ++bit) {
      uint32_t state = 1U << bit;
      for (size_t i = 0; i < kLane; ++i) state = StepByTable(state, 0);
      columns[bit] = state;
    }
    for (size_t byte = 0; byte < 4; ++byte) {
      for (size_t value = 0; value < 256; ++value) {
        uint32_t state = 0;
        for (size_t bit = 0; bit < 8; ++bit) {
          if ((value >> bit & 1) != 0) state ^= columns[8 * byte + bit];
        }
        tables_[byte][value] = state;
      }
    }
  }

  uint32_t operator()(uint32_t state) const {
    return tables_[0][state & 0xff] ^ tables_[1][state >> 8 & 0xff] ^
           tables_[2][state >> 16 & 0xff] ^ tables_[3][state >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> tables_;
};

uint64_t Load64(const char* from) {
  uint64_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(
    uint32_t crc, absl::string_view bytes) {
  static const LaneShift& shift = *new LaneShift;
  uint64_t state = ~crc;
  const char* next = bytes.data();
  const char* const end = next + bytes.size();
  for (; end - next >= static_cast<ptrdiff_t>(3 * kLane); next += 3 * kLane) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      state = _mm_crc32_u64(state, Load64(next + i));
      second = _mm_crc32_u64(second, Load64(next + kLane + i));
      third = _mm_crc32_u64(third, Load64(next + 2 * kLane + i));
    }
    state = shift(static_cast<uint32_t>(state)) ^ second;
    state = shift(static_cast<uint32_t>(state)) ^ third;
  }
  for (; end - next >= 8; next += 8) {
    state = _mm_crc32_u64(state, Load64(next));
  }
  auto rest = static_cast<uint32_t>(state);
  for (; next < end; ++next) {
    rest = _mm_crc32_u8(rest, static_cast<uint8_t>(*next));
  }
  return ~rest;
}

#endif

}  // namespace

uint32_t ExtendCrc32cByTable(uint32_t crc, absl::string_view bytes) {
  uint32_t state = ~crc;
  for (const char c : bytes)
    state = StepByTable(state, static_cast<uint8_t>(c));
  return ~state;
}

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ExtendByInstruction(crc, bytes);
#endif
  return ExtendCrc32cByTable(crc, bytes);
}

uint32_t Crc32c(absl::string_view bytes) { return ExtendCrc32c(0, bytes); }

}  // namespace dapd
