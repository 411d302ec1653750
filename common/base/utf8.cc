#include "common/base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace dapd {
namespace {

// Bytes of the sequence that starts with `lead`, and what its second byte may
// be; no sequence for 0.
struct Sequence {
  size_t length = 0;
  uint8_t min_second = 0x80;
  uint8_t max_second = 0xBF;
};

Sequence SequenceOf(uint8_t lead) {
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {0};  // a continuation, or overlong
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0};
  if (lead == 0xED) return {3, 0x80, 0x9F};  // surrogates above
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90};
  if (lead < 0xF4) return {4};
  return lead == 0xF4 ? Sequence{4, 0x80, 0x8F} : Sequence{0};
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const Sequence sequence = SequenceOf(byte(i));
    if (sequence.length == 0 || sequence.length > text.size() - i) return false;
    for (size_t k = 1; k < sequence.length; ++k) {
      const uint8_t min = k == 1 ? sequence.min_second : 0x80;
      const uint8_t max = k == 1 ? sequence.max_second : 0xBF;
      if (byte(i + k) < min || byte(i + k) > max) return false;
    }
    i += sequence.length;
  }
  return true;
}

}  // namespace dapd
