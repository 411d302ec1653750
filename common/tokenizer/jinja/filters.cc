#include "common/tokenizer/jinja/filters.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

// Of a text that is taken apart.
constexpr size_t kMaxLetters = 100000;
// What one filter may build.
constexpr size_t kMaxTextBytes = size_t{16} << 20;

absl::Status Refuse(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

absl::StatusOr<std::string> ReplaceText(const std::string& text,
                                        const Arguments& arguments) {
  const Value from = arguments.At(0, "old");
  const Value to = arguments.At(1, "new");
  if (!from.is_string() || !to.is_string() || from.string().empty()) {
    return Refuse("replace needs two strings");
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
  return Refuse(absl::StrCat("a ", value.TypeName(), " cannot be iterated"));
}

List Items(const Value& dict) {
  List items;
  for (const auto& [key, value] : dict.dict()) {
    items.emplace_back(List{Value(key), value});
  }
  return items;
}

using Filter =
    std::function<absl::StatusOr<Value>(const Value&, const Arguments&)>;

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
  return Refuse(absl::StrCat("a ", v.TypeName(), " has no length"));
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

Arguments WithoutFirst(Arguments arguments) {
  std::vector<Value>& all = arguments.positional;
  if (!all.empty()) all.erase(all.begin());
  return arguments;
}

// The items of `v` for which the test that the first argument names is
// `wanted`, of the item or of what `part` finds in it; without a name, whether
// that is true.
absl::StatusOr<Value> Sieve(
    const Value& v,
    const Arguments& a,
    bool wanted,
    const std::function<absl::StatusOr<Value>(const Value&)>& part) {
  const Value test = a.At(0, "test");
  if (!test.is_undefined() &&
      (!test.is_string() || !IsKnownTest(test.string()))) {
    return Refuse("select and reject need the name of a known test");
  }
  List kept;
  // Jinja takes whatever is false for an empty list.
  if (!v.Truthy()) return Value(std::move(kept));
  ASSIGN_OR_RETURN(const List items, ToList(v));
  const Arguments rest = WithoutFirst(a);
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value tested, part(item));
    bool holds = tested.Truthy();
    if (test.is_string()) {
      ASSIGN_OR_RETURN(holds, ApplyTest(test.string(), tested, rest));
    }
    if (holds == wanted) kept.push_back(item);
  }
  return Value(std::move(kept));
}

Filter SieveFilter(bool wanted) {
  return [wanted](const Value& v, const Arguments& a) {
    return Sieve(v, a, wanted, [](const Value& item) { return item; });
  };
}

// The keys and indices of `attribute`, which has dots between them.
List AttributePath(const std::string& attribute) {
  List path;
  for (const absl::string_view part : absl::StrSplit(attribute, '.')) {
    int64_t index = 0;
    const bool is_index =
        std::all_of(part.begin(), part.end(), absl::ascii_isdigit) &&
        absl::SimpleAtoi(part, &index);
    path.push_back(is_index ? Value(index) : Value(std::string(part)));
  }
  return path;
}

// The first argument is what to test of each item.
Filter AttributeSieveFilter(bool wanted) {
  return [wanted](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
    if (a.positional.empty() || !a.positional[0].is_string()) {
      return Refuse("selectattr and rejectattr need the name of an attribute");
    }
    const List path = AttributePath(a.positional[0].string());
    return Sieve(v,
                 WithoutFirst(a),
                 wanted,
                 [&](const Value& item) -> absl::StatusOr<Value> {
                   Value found = item;
                   for (const Value& key : path) {
                     ASSIGN_OR_RETURN(found, GetItem(found, key));
                   }
                   return found;
                 });
  };
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
           return Refuse(
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
         if (!v.is_dict()) return Refuse("items needs a dict");
         return Value(Items(v));
       }},
      {"join", Join},
      {"select", SieveFilter(true)},
      {"reject", SieveFilter(false)},
      {"selectattr", AttributeSieveFilter(true)},
      {"rejectattr", AttributeSieveFilter(false)},
      {"replace",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         ASSIGN_OR_RETURN(const std::string text, ToText(v));
         ASSIGN_OR_RETURN(std::string replaced, ReplaceText(text, a));
         return Value(std::move(replaced));
       }},
  };
  return table;
}

}  // namespace

bool IsKnownFilter(const std::string& name) { return Filters().contains(name); }

bool IsSieve(const std::string& name) {
  static const auto& sieves = *new std::set<std::string>{
      "select", "reject", "selectattr", "rejectattr"};
  return sieves.contains(name);
}

absl::StatusOr<Value> ApplyFilter(const std::string& name,
                                  const Value& operand,
                                  const Arguments& arguments) {
  return Filters().at(name)(operand, arguments);
}

}  // namespace dapd::jinja
