#include "common/tokenizer/jinja/filters.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/item_filters.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

// Of a text that is taken apart.
constexpr size_t kMaxLetters = 100000;
// What one filter may build.
constexpr size_t kMaxTextBytes = size_t{16} << 20;

absl::StatusOr<std::string> ReplaceText(const std::string& text,
                                        const Arguments& arguments) {
  const Value from = arguments.At(0, "old");
  const Value to = arguments.At(1, "new");
  if (!from.is_string() || !to.is_string() || from.string().empty()) {
    return absl::InvalidArgumentError("replace needs two strings");
  }
  if (text.size() / from.string().size() * to.string().size() > kMaxTextBytes) {
    return absl::ResourceExhaustedError("replace builds too long a text");
  }
  std::string replaced;
  size_t start = 0;
  for (size_t found = FindText(text, from.string()); found != std::string::npos;
       found = FindText(text, from.string(), start)) {
    replaced.append(text, start, found - start);
    replaced += to.string();
    start = found + from.string().size();
  }
  replaced.append(text, start);
  return replaced;
}

absl::StatusOr<List> ToList(const Value& value) {
  if (value.is_list()) return value.list();
  List items;
  if (value.is_string()) {
    const std::vector<CodePoint> letters = Characters(value.string());
    if (letters.size() > kMaxLetters) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a text of ",
                       letters.size(),
                       " characters is too long to be taken apart"));
    }
    for (const CodePoint& letter : letters) {
      items.emplace_back(
          value.string().substr(letter.begin, letter.end - letter.begin));
    }
    return items;
  }
  if (value.is_dict()) {
    for (const auto& entry : value.dict()) items.emplace_back(entry.first);
    return items;
  }
  if (value.is_undefined()) return items;
  return absl::InvalidArgumentError(
      absl::StrCat("a ", value.TypeName(), " cannot be iterated"));
}

List Items(const Value& dict) {
  List items;
  for (const auto& [key, value] : dict.dict()) {
    items.emplace_back(List{Value(key), value});
  }
  return items;
}

// Which is not Python's: a word goes on up to a space, a hyphen or an opening
// bracket.
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

absl::StatusOr<Value> TextOf(
    const Value& v,
    const std::function<std::string(const std::string&)>& change) {
  ASSIGN_OR_RETURN(const std::string text, ToText(v));
  return Value(change(text));
}

absl::StatusOr<Value> Length(const Value& v) {
  if (v.is_undefined()) return Value(int64_t{0});
  if (v.is_dict()) return Value(static_cast<int64_t>(v.dict().size()));
  if (v.is_list()) return Value(static_cast<int64_t>(v.list().size()));
  if (v.is_string()) {
    return Value(static_cast<int64_t>(Characters(v.string()).size()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a ", v.TypeName(), " has no length"));
}

absl::StatusOr<Value> Join(const Value& v, const Arguments& a) {
  ASSIGN_OR_RETURN(const std::string mark, ToText(a.At(0, "d")));
  ASSIGN_OR_RETURN(const List items, ToList(v));
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) joined += mark;
    ASSIGN_OR_RETURN(const std::string text, ToText(items[i]));
    joined += text;
    if (joined.size() > kMaxTextBytes) {
      return absl::ResourceExhaustedError("join builds too long a text");
    }
  }
  return Value(joined);
}

const std::map<std::string, Filter>& Filters() {
  static const auto& table = *new std::map<std::string, Filter>{
      {"trim",
       [](const Value& v, const Arguments& a) {
         return TextOf(v, [&](const std::string& text) {
           return Strip(text, a.At(0, "chars"), true, true);
         });
       }},
      {"upper",
       [](const Value& v, const Arguments&) {
         return TextOf(v, [](const std::string& t) { return Recase(t, true); });
       }},
      {"lower",
       [](const Value& v, const Arguments&) {
         return TextOf(v,
                       [](const std::string& t) { return Recase(t, false); });
       }},
      {"capitalize",
       [](const Value& v, const Arguments&) { return TextOf(v, Capitalize); }},
      {"title",
       [](const Value& v, const Arguments&) { return TextOf(v, JinjaTitle); }},
      {"safe",
       [](const Value&, const Arguments&) -> absl::StatusOr<Value> {
         return absl::InvalidArgumentError(
             "'safe' is not supported: '+' would escape what it joins to such "
             "a text; leave the filter out");
       }},
      {"string",
       [](const Value& v, const Arguments&) {
         return TextOf(v, [](const std::string& t) { return t; });
       }},
      {"length", [](const Value& v, const Arguments&) { return Length(v); }},
      {"count", [](const Value& v, const Arguments&) { return Length(v); }},
      {"tojson",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         // In transformers' order, which is not that of jinja2.
         const Value indent = a.At(1, "indent");
         if (a.At(0, "ensure_ascii").Truthy() ||
             (!indent.is_int() && !indent.is_none() &&
              !indent.is_undefined())) {
           return absl::InvalidArgumentError(
               "tojson with ensure_ascii is not supported, nor with "
               "an indent that is no number");
         }
         ASSIGN_OR_RETURN(
             std::string text,
             ToJson(v, indent.is_int() ? indent.integer() : -1, kMaxTextBytes));
         return Value(std::move(text));
       }},
      {"default",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         const bool falsy = a.At(1, "boolean").Truthy() && !v.Truthy();
         return v.is_undefined() || falsy ? a.At(0, "default_value") : v;
       }},
      {"first",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         ASSIGN_OR_RETURN(const List items, ToList(v));
         return items.empty() ? Value::MakeUndefined("first") : items.front();
       }},
      {"last",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         ASSIGN_OR_RETURN(const List items, ToList(v));
         return items.empty() ? Value::MakeUndefined("last") : items.back();
       }},
      {"list",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         ASSIGN_OR_RETURN(List items, ToList(v));
         return Value(std::move(items));
       }},
      {"items",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         if (v.is_undefined()) return Value(List{});
         if (!v.is_dict())
           return absl::InvalidArgumentError("items needs a dict");
         return Value(Items(v));
       }},
      {"join", Join},
      {"replace",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         ASSIGN_OR_RETURN(const std::string text, ToText(v));
         ASSIGN_OR_RETURN(std::string replaced, ReplaceText(text, a));
         return Value(std::move(replaced));
       }},
  };
  return table;
}

// Null if there is no such filter.
const Filter* FindFilter(const std::string& name) {
  for (const auto* table : {&Filters(), &ItemFilters()}) {
    const auto found = table->find(name);
    if (found != table->end()) return &found->second;
  }
  return nullptr;
}

}  // namespace

bool IsKnownFilter(const std::string& name) {
  return FindFilter(name) != nullptr;
}

absl::StatusOr<Value> ApplyFilter(const std::string& name,
                                  const Value& operand,
                                  const Arguments& arguments) {
  return (*FindFilter(name))(operand, arguments);
}

}  // namespace dapd::jinja
