#include "common/tokenizer/jinja/python_format.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/attributes.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_repr.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kMaxWidth = 100000;
constexpr int64_t kMaxPrecision = 1000;

absl::Status BadFormat(const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("format: ", problem));
}

// Describes the format of a value; -1 means that a number is not given.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;      // '<', '>', '^', '=' (between the sign and the digits)
  bool zeros = false;  // fill a number with zeros behind its sign
  char sign = '-';
  bool alternate = false;
  int64_t width = -1;
  char grouping = 0;  // ',' or '_'
  int64_t precision = -1;
  char type = 0;
};

absl::StatusOr<std::string> Padded(const FormatSpec& spec,
                                   const std::string& prefix,
                                   const std::string& body,
                                   char default_align) {
  if (spec.width > kMaxWidth || spec.precision > kMaxPrecision) {
    return absl::ResourceExhaustedError("a format's width is too large");
  }
  const auto size =
      static_cast<int64_t>(Characters(prefix).size() + Characters(body).size());
  const int64_t missing = std::max<int64_t>(spec.width - size, 0);
  const char align = spec.align == 0 ? default_align : spec.align;
  const auto fill = [&](int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += spec.fill;
    return text;
  };
  if (align == '<') return prefix + body + fill(missing);
  if (align == '=') return prefix + fill(missing) + body;
  if (align == '>') return fill(missing) + prefix + body;
  return fill(missing / 2) + prefix + body + fill(missing - missing / 2);
}

std::string Grouped(const std::string& digits, char mark, size_t group) {
  const size_t whole = std::min(
      digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string grouped;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) grouped += mark;
    grouped += digits[i];
  }
  return grouped + digits.substr(whole);
}

std::string SignOf(bool is_negative, char sign) {
  if (is_negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

std::string DigitsOf(uint64_t magnitude, unsigned base) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[magnitude % base]);
    magnitude /= base;
  } while (magnitude > 0);
  return digits;
}

// The grouping continues in zeros between the sign and the digits.
std::string WithZeros(const FormatSpec& spec,
                      const std::string& prefix,
                      std::string digits,
                      size_t group) {
  std::string body =
      spec.grouping == 0 ? digits : Grouped(digits, spec.grouping, group);
  if (spec.grouping == 0 || spec.fill != "0" || spec.align != '=') return body;
  const int64_t width = std::min(spec.width, kMaxWidth);
  while (static_cast<int64_t>(prefix.size() + body.size()) < width) {
    digits.insert(0, "0");
    body = Grouped(digits, spec.grouping, group);
  }
  return body;
}

absl::StatusOr<std::string> FormatInteger(int64_t number, FormatSpec spec) {
  const bool is_negative = number < 0;
  const uint64_t magnitude = is_negative ? 0 - static_cast<uint64_t>(number)
                                         : static_cast<uint64_t>(number);
  if (spec.precision >= 0) return BadFormat("an integer has no precision");
  std::string prefix = SignOf(is_negative, spec.sign);
  switch (spec.type) {
    case 'c': {
      if (number < 0 || number > 0x10FFFF)
        return BadFormat("no such character");
      std::string text;
      AppendCharacter(static_cast<uint32_t>(number), text);
      return Padded(spec, "", text, '<');
    }
    case 'b':
    case 'o':
    case 'x':
    case 'X': {
      const char letter = absl::ascii_tolower(spec.type);
      const unsigned base = letter == 'b' ? 2 : letter == 'o' ? 8 : 16;
      std::string digits = DigitsOf(magnitude, base);
      if (spec.alternate) absl::StrAppend(&prefix, "0", std::string(1, letter));
      if (spec.type == 'X') {
        absl::AsciiStrToUpper(&digits);
        absl::AsciiStrToUpper(&prefix);
      }
      if (spec.grouping == ',') {
        return BadFormat("',' is not allowed for such an integer");
      }
      return Padded(spec, prefix, WithZeros(spec, prefix, digits, 4), '>');
    }
    case 0:
    case 'd':
    case 'n':
      return Padded(spec,
                    prefix,
                    WithZeros(spec, prefix, DigitsOf(magnitude, 10), 3),
                    '>');
    default:
      return BadFormat(absl::StrCat(
          "an integer cannot be written as '", std::string(1, spec.type), "'"));
  }
}

std::string Printf(char type, bool alternate, int64_t precision, double d) {
  const std::string format =
      absl::StrCat("%", alternate ? "#" : "", ".*", std::string(1, type));
  const int size =
      std::snprintf(nullptr, 0, format.c_str(), static_cast<int>(precision), d);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(
      text.data(), text.size(), format.c_str(), static_cast<int>(precision), d);
  text.pop_back();
  return text;
}

// Writes a float that has a precision and no type: as 'g', but with a digit
// behind the point if there is no exponent.
std::string GeneralFloat(double d, int64_t precision) {
  const int64_t digits = std::max<int64_t>(precision, 1);
  std::string text = Printf('g', false, digits, d);
  const bool has_exponent = text.find('e') != std::string::npos;
  if (has_exponent || text.find('.') != std::string::npos) return text;
  // A whole number that needs all of the digits is written with an exponent.
  if (static_cast<int64_t>(text.size()) >= digits && d != 0) {
    return Printf('e', false, digits - 1, d);
  }
  return text + ".0";
}

absl::StatusOr<std::string> FormatFloat(double number, const FormatSpec& spec) {
  if (spec.precision > kMaxPrecision) {
    return absl::ResourceExhaustedError("a format's precision is too large");
  }
  const bool is_negative = std::signbit(number);
  const double magnitude = std::abs(number);
  const std::string prefix =
      SignOf(is_negative && !std::isnan(number), spec.sign);
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  std::string body;
  switch (spec.type) {
    case 0:
      body = !std::isfinite(magnitude) || spec.precision < 0
                 ? FloatText(magnitude)
                 : GeneralFloat(magnitude, spec.precision);
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      body = Printf(spec.type, spec.alternate, precision, magnitude);
      break;
    case 'n':
      body = Printf('g', spec.alternate, precision, magnitude);
      break;
    case '%':
      body = Printf('f', spec.alternate, precision, magnitude * 100) + "%";
      break;
    default:
      return BadFormat(absl::StrCat(
          "a float cannot be written as '", std::string(1, spec.type), "'"));
  }
  return Padded(spec, prefix, WithZeros(spec, prefix, body, 3), '>');
}

absl::StatusOr<std::string> FormatText(const std::string& text,
                                       const FormatSpec& spec) {
  std::string shown = text;
  const std::vector<CodePoint> letters = Characters(text);
  if (spec.precision >= 0 &&
      static_cast<size_t>(spec.precision) < letters.size()) {
    shown = text.substr(0, letters[static_cast<size_t>(spec.precision)].begin);
  }
  FormatSpec padding = spec;
  padding.precision = -1;
  return Padded(padding, "", shown, '<');
}

// The following functions implement text.format().

absl::StatusOr<FormatSpec> ReadSpec(absl::string_view rest) {
  FormatSpec spec;
  const std::string text(rest);
  const std::vector<CodePoint> letters = Characters(text);
  const auto is_align = [&](size_t i) {
    return i < letters.size() &&
           absl::StrContains("<>=^", text.substr(letters[i].begin, 1)) &&
           letters[i].value < 0x80;
  };
  size_t at = 0;
  if (is_align(1)) {
    spec.fill = text.substr(0, letters[0].end);
    spec.align = text[letters[1].begin];
    at = letters[1].end;
  } else if (is_align(0)) {
    spec.align = text[0];
    at = 1;
  }
  const auto sees = [&](absl::string_view any) {
    return at < text.size() && any.find(text[at]) != absl::string_view::npos;
  };
  const auto number = [&]() -> int64_t {
    int64_t value = 0;
    while (at < text.size() && absl::ascii_isdigit(text[at])) {
      value = std::min<int64_t>(value * 10 + (text[at++] - '0'), 1 << 30);
    }
    return value;
  };
  if (sees("+- ")) spec.sign = text[at++];
  if (sees("#")) {
    spec.alternate = true;
    ++at;
  }
  if (sees("0")) {
    // A text is filled on the right.
    spec.zeros = spec.align == 0;
    if (spec.zeros) spec.fill = "0";
    ++at;
  }
  if (sees("0123456789")) spec.width = number();
  if (sees(",_")) spec.grouping = text[at++];
  if (sees(".")) {
    ++at;
    if (!sees("0123456789")) return BadFormat("a precision is missing");
    spec.precision = number();
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) {
    return BadFormat(absl::StrCat("'", text, "' is not understood"));
  }
  return spec;
}

absl::StatusOr<std::string> FormatValue(const Value& value,
                                        absl::string_view rest) {
  ASSIGN_OR_RETURN(FormatSpec spec, ReadSpec(rest));
  if (value.is_bool() && rest.empty()) return ToText(value);
  if (value.is_number() && spec.zeros) spec.align = '=';
  if (value.is_whole()) {
    const bool as_float =
        absl::StrContains("eEfFgG%", std::string(1, spec.type)) &&
        spec.type != 0;
    return as_float ? FormatFloat(value.number(), spec)
                    : FormatInteger(value.integer(), spec);
  }
  if (value.is_double()) return FormatFloat(value.number(), spec);
  if (value.is_string()) {
    const bool is_plain = (spec.type == 0 || spec.type == 's') &&
                          spec.align != '=' && spec.sign == '-' &&
                          spec.grouping == 0 && !spec.alternate;
    if (!is_plain) {
      return BadFormat(
          absl::StrCat("a text cannot be written as '", rest, "'"));
    }
    return FormatText(value.string(), spec);
  }
  if (!rest.empty() && !value.is_undefined()) {
    return BadFormat(
        absl::StrCat("a ", value.TypeName(), " cannot have '", rest, "'"));
  }
  return ToText(value);
}

class BraceFormatter {
 public:
  explicit BraceFormatter(const Arguments& arguments) : arguments_(arguments) {}

  absl::StatusOr<std::string> Run(absl::string_view text, int depth) {
    if (depth < 0) return BadFormat("nested too deeply");
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (out.size() > kMaxBuiltBytes) {
        return absl::ResourceExhaustedError("format builds too long a text");
      }
      const char c = text[i];
      if (c != '{' && c != '}') {
        out += c;
        continue;
      }
      if (i + 1 < text.size() && text[i + 1] == c) {
        out += c;
        ++i;
        continue;
      }
      if (c == '}') return BadFormat("a single '}'");
      ASSIGN_OR_RETURN(const size_t end, EndOfField(text, i));
      ASSIGN_OR_RETURN(const std::string field,
                       Field(text.substr(i + 1, end - i - 1), depth));
      out += field;
      i = end;
    }
    return out;
  }

 private:
  // Returns the position of the "}" that closes the "{" at `begin`.
  static absl::StatusOr<size_t> EndOfField(absl::string_view text,
                                           size_t begin) {
    int open = 0;
    bool in_key = false;
    for (size_t i = begin; i < text.size(); ++i) {
      if (text[i] == '[') in_key = true;
      if (text[i] == ']') in_key = false;
      if (in_key) continue;
      if (text[i] == '{') ++open;
      if (text[i] == '}' && --open == 0) return i;
    }
    return BadFormat("a '{' is never closed");
  }

  absl::StatusOr<std::string> Field(absl::string_view field, int depth) {
    size_t end = 0;
    for (bool in_key = false; end < field.size(); ++end) {
      if (field[end] == '[') in_key = true;
      if (field[end] == ']') in_key = false;
      if (!in_key && (field[end] == '!' || field[end] == ':')) break;
    }
    ASSIGN_OR_RETURN(Value value, Named(field.substr(0, end)));
    absl::string_view rest = field.substr(end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        return BadFormat("'!' needs one letter behind it");
      }
      std::string text;
      if (rest[1] == 's') {
        ASSIGN_OR_RETURN(text, ToText(value));
      } else if (rest[1] == 'r') {
        ASSIGN_OR_RETURN(text, ToRepr(value));
      } else {
        return BadFormat("only !s and !r are supported");
      }
      value = Value(std::move(text));
      rest.remove_prefix(2);
    }
    if (!rest.empty()) rest.remove_prefix(1);
    ASSIGN_OR_RETURN(const std::string spec, Run(rest, depth - 1));
    return FormatValue(value, spec);
  }

  absl::StatusOr<Value> Named(absl::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    ASSIGN_OR_RETURN(Value value, First(path.substr(0, end)));
    path.remove_prefix(end);
    while (!path.empty()) {
      if (path[0] == '.') {
        path.remove_prefix(1);
        const size_t stop = std::min(path.find_first_of(".["), path.size());
        ASSIGN_OR_RETURN(
            value, GetAttribute(value, std::string(path.substr(0, stop))));
        path.remove_prefix(stop);
        continue;
      }
      const size_t close = path.find(']');
      if (close == absl::string_view::npos)
        return BadFormat("'[' is not closed");
      const absl::string_view key = path.substr(1, close - 1);
      int64_t index = 0;
      const bool is_index = absl::c_all_of(key, absl::ascii_isdigit) &&
                            absl::SimpleAtoi(key, &index);
      ASSIGN_OR_RETURN(
          value,
          GetItem(value, is_index ? Value(index) : Value(std::string(key))));
      path.remove_prefix(close + 1);
    }
    return value;
  }

  absl::StatusOr<Value> First(absl::string_view name) {
    int64_t index = 0;
    if (name.empty()) {
      if (next_ < 0) return BadFormat("'{}' behind a place with a number");
      index = next_++;
    } else if (absl::c_all_of(name, absl::ascii_isdigit) &&
               absl::SimpleAtoi(name, &index)) {
      if (next_ > 0) return BadFormat("a place with a number behind '{}'");
      next_ = -1;
    } else {
      for (const auto& [keyword, value] : arguments_.keywords) {
        if (keyword == name) return value;
      }
      return BadFormat(absl::StrCat("there is no '", name, "'"));
    }
    if (index >= static_cast<int64_t>(arguments_.positional.size())) {
      return BadFormat(absl::StrCat("there is no value ", index));
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  const Arguments& arguments_;
  int64_t next_ = 0;  // -1: the places have numbers
};

// The following functions implement text % values.

// Formats text % values, place by place: "%-8.3f", "%(name)s".
class PercentFormatter {
 public:
  PercentFormatter(absl::string_view text, const Value& values)
      : rest_(text), values_(values) {}

  absl::StatusOr<std::string> Run() {
    std::string out;
    while (!rest_.empty()) {
      if (out.size() > kMaxBuiltBytes) {
        return absl::ResourceExhaustedError("'%' builds too long a text");
      }
      const size_t mark = std::min(rest_.find('%'), rest_.size());
      absl::StrAppend(&out, rest_.substr(0, mark));
      rest_.remove_prefix(mark);
      if (rest_.empty()) break;
      rest_.remove_prefix(1);
      ASSIGN_OR_RETURN(const std::string field, Place());
      out += field;
    }
    // As in Python, a single value that no place takes is ignored if it is a
    // dict or a list.
    const bool must_be_taken =
        values_.is_tuple()
            ? next_ < values_.list().size()
            : next_ == 0 && !values_.is_dict() && !values_.is_sequence();
    if (must_be_taken) return BadFormat("there are values that no '%' takes");
    return out;
  }

 private:
  absl::StatusOr<Value> Take() {
    if (values_.is_tuple()) {
      if (next_ >= values_.list().size()) {
        return BadFormat("there are fewer values than '%'");
      }
      return values_.list()[next_++];
    }
    if (next_++ > 0) return BadFormat("there are fewer values than '%'");
    return values_;
  }

  absl::StatusOr<int64_t> Number() {
    if (absl::ConsumePrefix(&rest_, "*")) {
      ASSIGN_OR_RETURN(const Value value, Take());
      if (!value.is_whole()) return BadFormat("'*' needs an integer");
      return std::clamp<int64_t>(value.integer(), -(1 << 30), 1 << 30);
    }
    int64_t number = 0;
    while (!rest_.empty() && absl::ascii_isdigit(rest_[0])) {
      number = std::min<int64_t>(number * 10 + (rest_[0] - '0'), 1 << 30);
      rest_.remove_prefix(1);
    }
    return number;
  }

  absl::StatusOr<std::string> Place() {
    std::optional<Value> named;
    if (absl::ConsumePrefix(&rest_, "(")) {
      const size_t close = rest_.find(')');
      if (close == absl::string_view::npos)
        return BadFormat("'%(' is not closed");
      if (!values_.is_dict()) return BadFormat("'%(name)' needs a dict");
      named = values_.Get(rest_.substr(0, close));
      if (named->is_undefined()) {
        return BadFormat(
            absl::StrCat("there is no '", rest_.substr(0, close), "'"));
      }
      rest_.remove_prefix(close + 1);
    }
    FormatSpec spec;
    bool zeros = false;
    for (; !rest_.empty(); rest_.remove_prefix(1)) {
      const char c = rest_[0];
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+' || (c == ' ' && spec.sign == '-')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c == '0') {
        zeros = true;
      } else if (c != ' ') {
        break;
      }
    }
    ASSIGN_OR_RETURN(spec.width, Number());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (absl::ConsumePrefix(&rest_, ".")) {
      ASSIGN_OR_RETURN(spec.precision, Number());
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    while (!rest_.empty() && absl::StrContains("hlL", rest_.substr(0, 1))) {
      rest_.remove_prefix(1);
    }
    if (rest_.empty()) return BadFormat("a '%' is incomplete");
    const char type = rest_[0];
    rest_.remove_prefix(1);
    if (type == '%') return std::string("%");
    Value value;
    if (named.has_value()) {
      value = *named;
    } else {
      ASSIGN_OR_RETURN(value, Take());
    }
    if (zeros && spec.align == 0 && type != 's' && type != 'r') {
      spec.fill = "0";
      spec.align = '=';
    }
    return Write(type, value, spec);
  }

  static absl::StatusOr<std::string> Write(char type,
                                           const Value& value,
                                           FormatSpec spec) {
    spec.type = type;
    switch (type) {
      case 's':
      case 'r': {
        ASSIGN_OR_RETURN(const std::string text,
                         type == 's' ? ToText(value) : ToRepr(value));
        if (spec.align == 0) spec.align = '>';
        return FormatText(text, spec);
      }
      case 'c': {
        spec.align = spec.align == 0 ? '>' : spec.align;
        if (value.is_string() && Characters(value.string()).size() == 1) {
          spec.precision = -1;
          return FormatText(value.string(), spec);
        }
        if (!value.is_whole()) return BadFormat("'%c' needs a character");
        return FormatInteger(value.integer(), spec);
      }
      case 'd':
      case 'i':
      case 'u': {
        if (!value.is_number()) return BadFormat("'%d' needs a number");
        spec.type = 'd';
        return WriteWhole(value, spec);
      }
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_whole()) {
          return BadFormat(
              absl::StrCat("'%", std::string(1, type), "' needs an integer"));
        }
        return WriteWhole(value, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) {
          return BadFormat(
              absl::StrCat("'%", std::string(1, type), "' needs a number"));
        }
        return FormatFloat(value.number(), spec);
      default:
        return BadFormat(
            absl::StrCat("'%", std::string(1, type), "' is not supported"));
    }
  }

  // The precision is the least number of digits.
  static absl::StatusOr<std::string> WriteWhole(const Value& value,
                                                FormatSpec spec) {
    constexpr double kLimit = 9.2e18;
    if (value.is_double() && !(std::abs(value.number()) < kLimit)) {
      return BadFormat("a number is too large for an integer");
    }
    const int64_t number = value.is_double()
                               ? static_cast<int64_t>(value.number())
                               : value.integer();
    if (spec.precision < 0) return FormatInteger(number, spec);
    if (spec.precision > kMaxPrecision) {
      return absl::ResourceExhaustedError("a format's precision is too large");
    }
    const uint64_t magnitude = number < 0 ? 0 - static_cast<uint64_t>(number)
                                          : static_cast<uint64_t>(number);
    const char letter = absl::ascii_tolower(spec.type);
    std::string digits = DigitsOf(magnitude,
                                  letter == 'o'   ? 8
                                  : letter == 'x' ? 16
                                                  : 10);
    if (spec.type == 'X') absl::AsciiStrToUpper(&digits);
    const auto shortest = static_cast<size_t>(spec.precision);
    if (digits.size() < shortest) {
      digits.insert(0, std::string(shortest - digits.size(), '0'));
    }
    std::string prefix = SignOf(number < 0, spec.sign);
    if (spec.alternate && letter != 'd') {
      absl::StrAppend(&prefix, "0", std::string(1, spec.type));
    }
    return Padded(spec, prefix, digits, '>');
  }

  absl::string_view rest_;
  const Value& values_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::string> FormatPercent(const std::string& text,
                                          const Value& values) {
  return PercentFormatter(text, values).Run();
}

absl::StatusOr<std::string> FormatBraces(const std::string& text,
                                         const Arguments& arguments) {
  return BraceFormatter(arguments).Run(text, /*depth=*/2);
}

}  // namespace dapd::jinja
