#include "common/base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace dapd {
namespace {

// The length of the sequence that starts with `lead`, and the accepted values
// of its second byte. 0: no sequence starts with it.
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

bool MayStandAt(size_t k, const Sequence& sequence, uint8_t byte) {
  const uint8_t min = k == 1 ? sequence.min_second : 0x80;
  const uint8_t max = k == 1 ? sequence.max_second : 0xBF;
  return byte >= min && byte <= max;
}

// Returns the number of bytes at the start of the ill-formed `text` that could
// have become a character, at least 1.
size_t BeginningOfCharacter(absl::string_view text) {
  const Sequence sequence = SequenceOf(static_cast<uint8_t>(text[0]));
  size_t length = 1;
  while (length < sequence.length && length < text.size() &&
         MayStandAt(length, sequence, static_cast<uint8_t>(text[length]))) {
    ++length;
  }
  return length;
}

}  // namespace

size_t DecodeCharacter(absl::string_view text, char32_t* character) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Sequence sequence = SequenceOf(byte(0));
  if (sequence.length == 0 || sequence.length > text.size()) return 0;
  // The bits of the character in the lead byte.
  char32_t value =
      sequence.length == 1 ? byte(0) : byte(0) & (0x7F >> sequence.length);
  for (size_t k = 1; k < sequence.length; ++k) {
    if (!MayStandAt(k, sequence, byte(k))) return 0;
    value = value << 6 | (byte(k) & 0x3F);
  }
  *character = value;
  return sequence.length;
}

bool IsUtf8(absl::string_view text) {
  char32_t character = 0;
  while (!text.empty()) {
    const size_t length = DecodeCharacter(text, &character);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  char32_t character = 0;
  while (!text.empty()) {
    const size_t length = DecodeCharacter(text, &character);
    if (length == 0) {
      out.append("\xef\xbf\xbd");
      text.remove_prefix(BeginningOfCharacter(text));
    } else {
      out.append(text.data(), length);
      text.remove_prefix(length);
    }
  }
  return out;
}

bool BeginsCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

absl::string_view Utf8Head(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && !BeginsCharacter(text[end])) --end;
  return text.substr(0, end);
}

}  // namespace dapd
