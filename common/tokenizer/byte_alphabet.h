// Maps every byte to GPT-2's printable character for it. Byte-level
// vocabularies are written in this alphabet.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

class ByteAlphabet {
 public:
  static const ByteAlphabet& Get();

  // Returns the character for a byte, as UTF-8.
  const std::string& Symbol(uint8_t byte) const { return symbols_[byte]; }
  // Returns the character for a byte, as a code point.
  int32_t Letter(uint8_t byte) const { return letters_[byte]; }

  // Returns the bytes that a vocabulary entry stands for. An entry with a
  // character outside the alphabet (an added token) stands for its own bytes.
  std::string ToBytes(absl::string_view token) const;

 private:
  ByteAlphabet();
  std::array<std::string, 256> symbols_;
  std::array<int32_t, 256> letters_;
  std::map<int32_t, uint8_t> bytes_;  // by code point
};

}  // namespace dapd
