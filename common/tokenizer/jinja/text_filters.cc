// Implements filters that write a text, and filters that accept any value.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/attributes.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_format.h"
#include "common/tokenizer/jinja/python_repr.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr size_t kMaxIndent = 64;

Builtin OnText(const char* parameters,
               std::function<absl::StatusOr<std::string>(const std::string&,
                                                         const Call&)> change) {
  return {parameters,
          [change = std::move(change)](const Call& c) -> absl::StatusOr<Value> {
            ASSIGN_OR_RETURN(const std::string text, ToText(c.object));
            ASSIGN_OR_RETURN(std::string changed, change(text, c));
            return Value(std::move(changed));
          }};
}

// Differs from Python's title(): a word extends to a space, a hyphen or an
// opening bracket.
std::string JinjaTitle(const std::string& text) {
  std::string title;
  std::string word;
  const auto end_word = [&] {
    const std::vector<CodePoint> letters = Characters(word);
    if (letters.empty()) return;
    title += Recase(word.substr(0, letters[0].end), true) +
             Recase(word.substr(letters[0].end), false);
    word.clear();
  };
  for (const CodePoint& letter : Characters(text)) {
    const std::string bytes =
        text.substr(letter.begin, letter.end - letter.begin);
    if (IsPythonSpace(letter.value) ||
        absl::string_view("-({[<").find(bytes) != absl::string_view::npos) {
      end_word();
      title += bytes;
    } else {
      word += bytes;
    }
  }
  end_word();
  return title;
}

// The parameters are in transformers' order, which differs from jinja2's.
absl::StatusOr<Value> TojsonFilter(const Call& call) {
  JsonStyle style;
  style.ensure_ascii = call[0].Truthy();
  style.sort_keys = call[3].Truthy();
  if (call.has(1)) {
    style.breaks_lines = true;
    style.item_separator = ",";
    if (call[1].is_string()) {
      style.indent = call[1].string();
    } else {
      ASSIGN_OR_RETURN(const int64_t width, IntegerOr(call[1], 0));
      style.indent.assign(
          static_cast<size_t>(std::clamp<int64_t>(width, 0, kMaxIndent + 1)),
          ' ');
    }
    if (style.indent.size() > kMaxIndent) {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson with an indent of more than ", kMaxIndent));
    }
  }
  if (call.has(2)) {
    const bool is_pair = call[2].is_sequence() && call[2].list().size() == 2 &&
                         call[2].list()[0].is_string() &&
                         call[2].list()[1].is_string();
    if (!is_pair) {
      return absl::InvalidArgumentError("tojson needs two separators");
    }
    style.item_separator = call[2].list()[0].string();
    style.key_separator = call[2].list()[1].string();
  }
  ASSIGN_OR_RETURN(std::string text, ToJson(call.object, style));
  return Value(std::move(text));
}

absl::StatusOr<Value> DefaultFilter(const Call& call) {
  const bool falsy = call[1].Truthy() && !call.object.Truthy();
  if (!call.object.is_undefined() && !falsy) return call.object;
  const bool is_given =
      !call.arguments.positional.empty() || !call[0].is_undefined();
  return is_given ? call[0] : Value(std::string());
}

absl::StatusOr<Value> IndentFilter(const Call& call) {
  if (!call.object.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "indent needs a string, and there is ", call.object.TypeName()));
  }
  const std::string& text = call.object.string();
  std::string indent;
  if (call[0].is_string()) {
    indent = call[0].string();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, IntegerOr(call[0], 4));
    if (width > static_cast<int64_t>(kMaxBuiltBytes)) {
      return absl::ResourceExhaustedError("indent builds too long a text");
    }
    indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = call[1].Truthy();
  const bool blank = call[2].Truthy();
  std::string indented = first ? indent : "";
  const List lines = SplitLines(text + "\n", /*keep_ends=*/false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      indented += '\n';
      if (blank || !lines[i].string().empty()) indented += indent;
    }
    indented += lines[i].string();
    if (indented.size() > kMaxBuiltBytes) {
      return absl::ResourceExhaustedError("indent builds too long a text");
    }
  }
  return Value(std::move(indented));
}

absl::StatusOr<Value> TruncateFilter(const Call& call) {
  if (!call.object.is_string()) {
    return absl::InvalidArgumentError("truncate needs a string");
  }
  const std::string& text = call.object.string();
  ASSIGN_OR_RETURN(const int64_t length, IntegerOr(call[0], 255));
  ASSIGN_OR_RETURN(const int64_t leeway, IntegerOr(call[3], 5));
  const std::string end = call[2].is_string() ? call[2].string() : "...";
  const std::vector<CodePoint> letters = Characters(text);
  const int64_t kept = length - static_cast<int64_t>(Characters(end).size());
  if (kept < 0 || leeway < 0) {
    return absl::InvalidArgumentError("truncate: the length is too small");
  }
  const auto size = static_cast<int64_t>(letters.size());
  if (size <= length || size - length <= leeway) return call.object;
  std::string cut = text.substr(
      0, kept == 0 ? 0 : letters[static_cast<size_t>(kept - 1)].end);
  if (!call[1].Truthy()) {
    const size_t space = cut.rfind(' ');
    if (space != std::string::npos) cut.resize(space);
  }
  return Value(cut + end);
}

// Counts runs of letters, digits and underscores.
absl::StatusOr<Value> WordCount(const Call& call) {
  ASSIGN_OR_RETURN(const std::string text, ToText(call.object));
  int64_t words = 0;
  bool in_word = false;
  for (const CodePoint& c : Characters(text)) {
    const bool is_part =
        c.value == '_' || IsLetter(c.value) || IsNumber(c.value);
    if (is_part && !in_word) ++words;
    in_word = is_part;
  }
  return Value(words);
}

absl::StatusOr<Value> FormatFilter(const Call& call) {
  ASSIGN_OR_RETURN(const std::string text, ToText(call.object));
  const Arguments& given = call.arguments;
  if (!given.positional.empty() && !given.keywords.empty()) {
    return absl::InvalidArgumentError(
        "format takes arguments with names or without, not both");
  }
  Value values(given.positional, Shape::kTuple);
  if (!given.keywords.empty()) {
    DictBuilder named;
    for (const auto& [name, value] : given.keywords) named.Set(name, value);
    values = Value(named.Take());
  }
  ASSIGN_OR_RETURN(std::string formatted, FormatPercent(text, values));
  return Value(std::move(formatted));
}

// Implements urllib's quote(): "/" is not quoted, except in a query, where a
// space becomes "+".
std::string QuotedUrl(const std::string& text, bool in_query) {
  std::string quoted;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        absl::string_view("_.-~").find(c) != absl::string_view::npos ||
        (c == '/' && !in_query)) {
      quoted += c;
    } else if (c == ' ' && in_query) {
      quoted += '+';
    } else {
      std::string hex = absl::StrCat(
          absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
      absl::AsciiStrToUpper(&hex);
      absl::StrAppend(&quoted, "%", hex);
    }
  }
  return quoted;
}

absl::StatusOr<Value> UrlEncode(const Call& call) {
  const bool is_text = !call.object.is_list() && !call.object.is_dict();
  if (is_text) {
    ASSIGN_OR_RETURN(const std::string text, ToText(call.object));
    return Value(QuotedUrl(text, /*in_query=*/false));
  }
  List pairs;
  if (call.object.is_dict()) {
    for (const auto& [key, value] : call.object.dict()) {
      pairs.emplace_back(List{key, value});
    }
  } else {
    pairs = call.object.list();
  }
  std::string query;
  for (const Value& pair : pairs) {
    ASSIGN_OR_RETURN(const List parts, Iterate(pair));
    if (parts.size() != 2) {
      return absl::InvalidArgumentError("urlencode needs pairs");
    }
    ASSIGN_OR_RETURN(const std::string key, ToText(parts[0]));
    ASSIGN_OR_RETURN(const std::string value, ToText(parts[1]));
    absl::StrAppend(&query,
                    query.empty() ? "" : "&",
                    QuotedUrl(key, true),
                    "=",
                    QuotedUrl(value, true));
  }
  return Value(std::move(query));
}

// `object | attr('name')` does not look at entries.
absl::StatusOr<Value> AttrFilter(const Call& call) {
  if (!call[0].is_string()) {
    return absl::InvalidArgumentError("attr needs a name");
  }
  if (call.object.is_undefined()) return call.object;
  return GetOwnAttribute(call.object, call[0].string());
}

absl::StatusOr<Value> EscapeFilter(const Call& call) {
  if (call.object.is_markup()) return call.object;
  ASSIGN_OR_RETURN(const std::string text, ToText(call.object));
  return Value::MakeMarkup(EscapeHtml(text));
}

absl::StatusOr<std::string> CenterText(const std::string& text,
                                       const Call& call) {
  ASSIGN_OR_RETURN(const int64_t width, IntegerOr(call[0], 80));
  return Justify(text, width, " ", /*fills_left=*/true, /*fills_right=*/true);
}

absl::StatusOr<std::string> ReplaceInText(const std::string& text,
                                          const Call& call) {
  ASSIGN_OR_RETURN(const std::string from, ToText(call[0]));
  ASSIGN_OR_RETURN(const std::string to, ToText(call[1]));
  ASSIGN_OR_RETURN(const int64_t count, IntegerOr(call[2], -1));
  return ReplaceText(text, from, to, count < 0 ? INT64_MAX : count);
}

Builtin RefusedFilter(const char* why) {
  return {"*", [why](const Call&) -> absl::StatusOr<Value> {
            return absl::InvalidArgumentError(why);
          }};
}

}  // namespace

const Builtins& TextFilters() {
  static const auto& table = *new Builtins{
      {"attr", {"name", AttrFilter}},
      {"capitalize",
       OnText("", [](const auto& t, const Call&) { return Capitalize(t); })},
      {"center", OnText("width?", CenterText)},
      {"d", {"default_value? boolean?", DefaultFilter}},
      {"default", {"default_value? boolean?", DefaultFilter}},
      {"e", {"", EscapeFilter}},
      {"escape", {"", EscapeFilter}},
      {"forceescape",
       {"",
        [](const Call& c) -> absl::StatusOr<Value> {
          ASSIGN_OR_RETURN(const std::string text, ToText(c.object));
          return Value::MakeMarkup(EscapeHtml(text));
        }}},
      {"format", {"*", FormatFilter}},
      {"indent", {"width? first? blank?", IndentFilter}},
      {"lower",
       OnText("", [](const auto& t, const Call&) { return Recase(t, false); })},
      {"pprint", RefusedFilter("the filter 'pprint' is not supported")},
      {"replace", OnText("old new count?", ReplaceInText)},
      {"safe",
       {"",
        [](const Call& c) -> absl::StatusOr<Value> {
          ASSIGN_OR_RETURN(std::string text, ToText(c.object));
          return Value::MakeMarkup(std::move(text));
        }}},
      {"string",
       {"",
        [](const Call& c) -> absl::StatusOr<Value> {
          if (c.object.is_string()) return c.object;
          ASSIGN_OR_RETURN(std::string text, ToText(c.object));
          return Value(std::move(text));
        }}},
      {"striptags", RefusedFilter("the filter 'striptags' is not supported")},
      {"title",
       OnText("", [](const auto& t, const Call&) { return JinjaTitle(t); })},
      {"tojson",
       {"ensure_ascii? indent? separators? sort_keys?", TojsonFilter}},
      {"trim",
       OnText("chars?",
              [](const auto& t, const Call& c) {
                return Strip(t, c[0], /*left=*/true, /*right=*/true);
              })},
      {"truncate", {"length? killwords? end? leeway?", TruncateFilter}},
      {"upper",
       OnText("", [](const auto& t, const Call&) { return Recase(t, true); })},
      {"urlencode", {"", UrlEncode}},
      {"urlize", RefusedFilter("the filter 'urlize' is not supported")},
      {"wordcount", {"", WordCount}},
      {"wordwrap", RefusedFilter("the filter 'wordwrap' is not supported")},
      {"xmlattr", RefusedFilter("the filter 'xmlattr' is not supported")},
  };
  return table;
}

}  // namespace dapd::jinja
