#include "common/tokenizer/jinja/python_repr.h"

#include <unicode/uchar.h>
#include <unicode/utf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr size_t kMaxWrittenBytes = size_t{16} << 20;

absl::Status CheckWritten(const std::string& text) {
  if (text.size() <= kMaxWrittenBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError("a value is too large to be written");
}

// Implements Python's str.isprintable().
bool IsPrintable(int32_t c) {
  constexpr uint32_t kHidden =
      U_GC_C_MASK | U_GC_ZL_MASK | U_GC_ZP_MASK | U_GC_ZS_MASK;
  return c == ' ' || (U_GET_GC_MASK(c) & kHidden) == 0;
}

std::string QuotedText(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote =
      has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (const CodePoint& point : Characters(text)) {
    const auto c = static_cast<uint32_t>(point.value);
    if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      absl::StrAppend(&quoted, "\\", text.substr(point.begin, 1));
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (IsPrintable(point.value)) {
      quoted += text.substr(point.begin, point.end - point.begin);
    } else if (c < 0x100) {
      absl::StrAppend(&quoted, "\\x", absl::Hex(c, absl::kZeroPad2));
    } else if (c < 0x10000) {
      absl::StrAppend(&quoted, "\\u", absl::Hex(c, absl::kZeroPad4));
    } else {
      absl::StrAppend(&quoted, "\\U", absl::Hex(c, absl::kZeroPad8));
    }
  }
  quoted += quote;
  return quoted;
}

absl::Status AppendRepr(const Value& value, std::string& out);

absl::Status AppendEntries(const Dict& entries, std::string& out) {
  out += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ", ";
    RETURN_IF_ERROR(AppendRepr(entries[i].first, out));
    out += ": ";
    RETURN_IF_ERROR(AppendRepr(entries[i].second, out));
  }
  out += '}';
  return absl::OkStatus();
}

absl::Status AppendItems(const Value& value, std::string& out) {
  const char* open = "[";
  const char* close = "]";
  switch (value.shape()) {
    case Shape::kList:
      break;
    case Shape::kTuple:
    case Shape::kGroup:
      open = "(";
      close = value.list().size() == 1 ? ",)" : ")";
      break;
    case Shape::kKeys:
      open = "dict_keys([";
      close = "])";
      break;
    case Shape::kValues:
      open = "dict_values([";
      close = "])";
      break;
    case Shape::kItems:
      open = "dict_items([";
      close = "])";
      break;
    case Shape::kRange:
      return absl::InvalidArgumentError(
          "a range cannot be printed; write '| list' after it");
  }
  out += open;
  for (size_t i = 0; i < value.list().size(); ++i) {
    if (i > 0) out += ", ";
    RETURN_IF_ERROR(AppendRepr(value.list()[i], out));
  }
  out += close;
  return absl::OkStatus();
}

absl::Status AppendRepr(const Value& value, std::string& out) {
  RETURN_IF_ERROR(CheckWritten(out));
  if (value.is_list()) return AppendItems(value, out);
  if (value.is_dict()) return AppendEntries(value.dict(), out);
  if (value.is_namespace()) {
    out += "<Namespace ";
    RETURN_IF_ERROR(AppendEntries(value.entries(), out));
    out += ">";
    return absl::OkStatus();
  }
  if (value.is_string()) {
    out += value.is_markup()
               ? absl::StrCat("Markup(", QuotedText(value.string()), ")")
               : QuotedText(value.string());
    return absl::OkStatus();
  }
  if (value.is_undefined()) {
    out += "Undefined";
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string text, ToText(value));
  out += text;
  return absl::OkStatus();
}

// Writes values as JSON, behind the text that was written before.
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  absl::Status Write(const Value& value, size_t depth) {
    RETURN_IF_ERROR(CheckWritten(out_));
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_string()) {
      WriteString(value.string());
    } else if (value.is_double()) {
      out_ += JsonFloat(value.number());
    } else if (value.is_int()) {
      absl::StrAppend(&out_, value.integer());
    } else if (value.is_list() &&
               (value.shape() == Shape::kList || value.is_tuple())) {
      return WriteAll('[', ']', value.list(), depth);
    } else if (value.is_dict()) {
      return WriteDict(value.dict(), depth);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson cannot be applied to ", value.TypeName()));
    }
    return absl::OkStatus();
  }
  std::string& out() { return out_; }

 private:
  static std::string JsonFloat(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return FloatText(d);
  }
  void WriteString(const std::string& text) {
    out_ += nlohmann::json(text).dump(
        -1, ' ', /*ensure_ascii=*/style_.ensure_ascii);
  }
  template <typename Entries>
  absl::Status WriteAll(char open,
                        char close,
                        const Entries& entries,
                        size_t depth) {
    out_.push_back(open);
    bool first = true;
    for (const auto& entry : entries) {
      if (!first) out_ += style_.item_separator;
      first = false;
      Break(depth + 1);
      RETURN_IF_ERROR(WriteEntry(entry, depth + 1));
    }
    if (!first) Break(depth);
    out_.push_back(close);
    return absl::OkStatus();
  }
  absl::Status WriteEntry(const Value& item, size_t depth) {
    return Write(item, depth);
  }
  absl::Status WriteEntry(const std::pair<Value, Value>& item, size_t depth) {
    const Value& key = item.first;
    if (key.is_string()) {
      WriteString(key.string());
    } else if (key.is_number() || key.is_none()) {
      out_ += '"';
      RETURN_IF_ERROR(Write(key, depth));
      out_ += '"';
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson cannot write a key that is a ", key.TypeName()));
    }
    out_ += style_.key_separator;
    return Write(item.second, depth);
  }
  absl::Status WriteDict(const Dict& dict, size_t depth) {
    if (!style_.sort_keys) return WriteAll('{', '}', dict, depth);
    Dict sorted = dict;
    absl::Status status;
    std::stable_sort(
        sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
          const auto less = IsLess(a.first, b.first);
          if (!less.ok()) status = less.status();
          return less.ok() && *less;
        });
    RETURN_IF_ERROR(status);
    return WriteAll('{', '}', sorted, depth);
  }
  void Break(size_t depth) {
    if (!style_.breaks_lines) return;
    out_.push_back('\n');
    for (size_t i = 0; i < depth; ++i) out_ += style_.indent;
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string FloatText(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char text[40];
  int decimals = 0;
  do {
    std::snprintf(text, sizeof(text), "%.*e", decimals, d);
    // The loop uses strtod, since std::stod throws for a value near 0.
  } while (std::strtod(text, nullptr) != d && ++decimals < 17);
  const int exponent = std::atoi(std::strchr(text, 'e') + 1);
  if (exponent < -4 || exponent >= 16) return text;
  // Writes at least one digit behind the point.
  std::snprintf(
      text, sizeof(text), "%.*f", std::max(decimals - exponent, 1), d);
  return text;
}

absl::StatusOr<std::string> ToRepr(const Value& value) {
  std::string out;
  RETURN_IF_ERROR(AppendRepr(value, out));
  return out;
}

absl::StatusOr<std::string> ToText(const Value& value) {
  if (value.is_undefined()) return std::string();
  if (value.is_none()) return std::string("None");
  if (value.is_bool()) return std::string(value.boolean() ? "True" : "False");
  if (value.is_int()) return absl::StrCat(value.integer());
  if (value.is_double()) return FloatText(value.number());
  if (value.is_string()) return value.string();
  if (value.is_list() || value.is_dict() || value.is_namespace()) {
    return ToRepr(value);
  }
  if (value.is_macro()) {
    return absl::StrCat("<Macro '", value.macro().statement->text, "'>");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a ",
      value.TypeName(),
      value.is_generator() ? " cannot be printed; write '| list' after it"
                           : " cannot be printed; call it"));
}

absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  RETURN_IF_ERROR(writer.Write(value, 0));
  RETURN_IF_ERROR(CheckWritten(writer.out()));
  return std::move(writer.out());
}

}  // namespace dapd::jinja
