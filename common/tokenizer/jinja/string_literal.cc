#include "common/tokenizer/jinja/string_literal.h"

#include <unicode/utf.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/python_text.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd::jinja {
namespace {

// Letters behind a backslash, and the character that each of them stands for.
constexpr absl::string_view kLetters = "\\'\"abfnrtv";
constexpr absl::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
constexpr uint32_t kLastCharacter = 0x10FFFF;

// Python's encode("ascii", "backslashreplace").
absl::StatusOr<std::string> ToAscii(const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<CodePoint> points, DecodeUtf8(text));
  std::string ascii;
  for (const CodePoint& point : points) {
    const auto c = static_cast<uint32_t>(point.value);
    if (c < 0x80) {
      ascii.push_back(static_cast<char>(c));
    } else if (c < 0x100) {
      absl::StrAppend(&ascii, "\\x", absl::Hex(c, absl::kZeroPad2));
    } else if (c < 0x10000) {
      absl::StrAppend(&ascii, "\\u", absl::Hex(c, absl::kZeroPad4));
    } else {
      absl::StrAppend(&ascii, "\\U", absl::Hex(c, absl::kZeroPad8));
    }
  }
  return ascii;
}

size_t HexDigits(char kind) {
  if (kind == 'x') return 2;
  if (kind == 'u') return 4;
  return kind == 'U' ? 8 : 0;
}

// Reads at most three octal digits.
uint32_t ReadOctal(absl::string_view& rest) {
  uint32_t c = 0;
  for (int i = 0; i < 3 && !rest.empty() && rest[0] >= '0' && rest[0] <= '7';
       ++i) {
    c = 8 * c + static_cast<uint32_t>(rest[0] - '0');
    rest.remove_prefix(1);
  }
  return c;
}

absl::StatusOr<uint32_t> ReadHex(absl::string_view& rest, size_t digits) {
  const absl::string_view number = rest.substr(0, digits);
  uint32_t c = 0;
  if (number.size() < digits ||
      !std::all_of(number.begin(), number.end(), absl::ascii_isxdigit) ||
      !absl::SimpleHexAtoi(number, &c) || c > kLastCharacter ||
      U_IS_SURROGATE(c)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an escape with '", number, "' for ", digits, " hexadecimal digits"));
  }
  rest.remove_prefix(digits);
  return c;
}

}  // namespace

absl::StatusOr<std::string> Unescape(const std::string& literal) {
  ASSIGN_OR_RETURN(const std::string ascii, ToAscii(literal));
  std::string text;
  for (absl::string_view rest = ascii; !rest.empty();) {
    const char c = rest[0];
    rest.remove_prefix(1);
    if (c != '\\' || rest.empty()) {
      text.push_back(c);
      continue;
    }
    if (rest[0] >= '0' && rest[0] <= '7') {
      AppendCharacter(ReadOctal(rest), text);
      continue;
    }
    const char kind = rest[0];
    rest.remove_prefix(1);
    const size_t letter = kLetters.find(kind);
    if (letter != absl::string_view::npos) {
      text.push_back(kMeanings[letter]);
    } else if (HexDigits(kind) > 0) {
      ASSIGN_OR_RETURN(const uint32_t point, ReadHex(rest, HexDigits(kind)));
      AppendCharacter(point, text);
    } else if (kind == 'N') {
      return absl::InvalidArgumentError("the escape \\N is not supported");
    } else if (kind != '\n') {
      text.push_back('\\');
      text.push_back(kind);
    }
  }
  return text;
}

}  // namespace dapd::jinja
