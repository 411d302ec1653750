// GPT-2's printable stand-in for every byte: the alphabet in which byte-level
// vocabularies are written.
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

  // The stand-in character of a byte, as UTF-8.
  const std::string& Symbol(uint8_t byte) const { return symbols_[byte]; }
  // The same as a code point.
  int32_t Letter(uint8_t byte) const { return letters_[byte]; }

  // The bytes that a vocabulary entry stands for. An entry with a character
  // outside the alphabet (an added token) stands for its own bytes.
  std::string ToBytes(absl::string_view token) const;

 private:
  ByteAlphabet();
  std::array<std::string, 256> symbols_;
  std::array<int32_t, 256> letters_;
  std::map<int32_t, uint8_t> bytes_;  // by code point
};

}  // namespace dapd
