#include "common/config/yaml_text.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace dapd {

std::string FormatDouble(double value) {
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

bool ParseDouble(const std::string& text, double* value) {
  if (text == ".inf" || text == "+.inf" || text == ".Inf") {
    *value = std::numeric_limits<double>::infinity();
    return true;
  }
  return absl::SimpleAtod(text, value) && std::isfinite(*value);
}

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      quoted += absl::StrFormat("\\x%02x", c);
    } else {
      if (c == '"' || c == '\\') quoted.push_back('\\');
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

std::string TextOverride(const std::string& key, const std::string& text) {
  return absl::StrCat(key, "=", Quote(text));
}

}  // namespace dapd
