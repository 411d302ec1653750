#include "common/tokenizer/byte_alphabet.h"

#include <unicode/utf8.h>

#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

}  // namespace

const ByteAlphabet& ByteAlphabet::Get() {
  static const auto& alphabet = *new ByteAlphabet();
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  int32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t c = IsPrintable(byte) ? byte : next++;
    uint8_t encoded[U8_MAX_LENGTH];
    int32_t length = 0;
    U8_APPEND_UNSAFE(encoded, length, c);
    symbols_[static_cast<size_t>(byte)].assign(reinterpret_cast<char*>(encoded),
                                               static_cast<size_t>(length));
    letters_[static_cast<size_t>(byte)] = c;
    bytes_[c] = static_cast<uint8_t>(byte);
  }
}

std::string ByteAlphabet::ToBytes(absl::string_view token) const {
  const auto points = DecodeUtf8(token);
  std::string bytes;
  if (points.ok()) {
    for (const CodePoint& point : *points) {
      const auto found = bytes_.find(point.value);
      if (found == bytes_.end()) return std::string(token);
      bytes.push_back(static_cast<char>(found->second));
    }
    return bytes;
  }
  return std::string(token);
}

}  // namespace dapd
