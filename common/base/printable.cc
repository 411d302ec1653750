#include "common/base/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/utf8.h"

namespace dapd {
namespace {

constexpr char kIndent[] = "  ";

bool IsUnfit(char32_t c) {
  const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool ends_line = c == 0x2028 || c == 0x2029;
  const bool turns_direction = c == 0x061C || c == 0x200E || c == 0x200F ||
                               (c >= 0x202A && c <= 0x202E) ||
                               (c >= 0x2066 && c <= 0x2069);
  return is_control || ends_line || turns_direction;
}

void AppendEscaped(char32_t c, std::string* out) {
  switch (c) {
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    default:
      const auto value = static_cast<uint32_t>(c);
      if (value < 0x80) {
        absl::StrAppendFormat(out, "\\x%02x", value);
      } else {
        absl::StrAppendFormat(out, "\\u%04x", value);
      }
  }
}

std::string Escape(absl::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    char32_t c = 0;
    const size_t length = DecodeCharacter(text, &c);
    if (length == 0) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    const absl::string_view rest = text.substr(length);
    if (c == '\n' && keep_lines && rest.substr(0, 2) == kIndent) {
      out.push_back('\n');
    } else if (IsUnfit(c)) {
      AppendEscaped(c, &out);
    } else {
      out.append(text.data(), length);
    }
    text = rest;
  }
  return out;
}

}  // namespace

std::string Printable(absl::string_view text) { return Escape(text, false); }

std::string PrintableLines(absl::string_view text) {
  return Escape(text, true);
}

}  // namespace dapd
