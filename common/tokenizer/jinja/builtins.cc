#include "common/tokenizer/jinja/builtins.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;
// May be asked for ("is defined") and is not there.
constexpr char kClock[] = "strftime_now";
// What one filter may build.
constexpr size_t kMaxTextBytes = size_t{16} << 20;

absl::Status Refuse(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

absl::StatusOr<std::string> ReplaceText(const std::string& text,
                                        const Arguments& arguments) {
  const Value from = arguments.At(0, "old");
  const Value to = arguments.At(1, "new");
  if (!from.is_string() || !to.is_string() || from.string().empty() ||
      arguments.positional.size() > 2) {
    return Refuse("replace needs two strings");
  }
  if (text.size() / from.string().size() * to.string().size() > kMaxTextBytes) {
    return absl::ResourceExhaustedError("replace builds too long a text");
  }
  return absl::StrReplaceAll(text, {{from.string(), to.string()}});
}

absl::StatusOr<List> ToList(const Value& value) {
  if (value.is_list()) return value.list();
  List items;
  if (value.is_string()) {
    const std::vector<CodePoint> letters = Characters(value.string());
    if (letters.size() > static_cast<size_t>(kMaxRange)) {
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
  const Value mark = a.At(0, "d");
  ASSIGN_OR_RETURN(const List items, ToList(v));
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && mark.is_string()) joined += mark.string();
    ASSIGN_OR_RETURN(const std::string text, ToText(items[i]));
    joined += text;
    if (joined.size() > kMaxTextBytes) {
      return absl::ResourceExhaustedError("join builds too long a text");
    }
  }
  return Value(joined);
}

// The items for which the test that the first argument names is `wanted`;
// without a name, whether they are true.
absl::StatusOr<Value> Sieve(const Value& v, const Arguments& a, bool wanted) {
  ASSIGN_OR_RETURN(const List items, ToList(v));
  const Value test = a.At(0, "test");
  Arguments rest = a;
  if (!rest.positional.empty()) rest.positional.erase(rest.positional.begin());
  if (!test.is_undefined() &&
      (!test.is_string() || !IsKnownTest(test.string()))) {
    return Refuse("select and reject need the name of a known test");
  }
  List kept;
  for (const Value& item : items) {
    bool holds = item.Truthy();
    if (test.is_string()) {
      ASSIGN_OR_RETURN(holds, ApplyTest(test.string(), item, rest));
    }
    if (holds == wanted) kept.push_back(item);
  }
  return Value(std::move(kept));
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
         const Value indent = a.At(0, "indent");
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
         if (!v.is_dict()) return Refuse("items of something not a dict");
         return Value(Items(v));
       }},
      {"join", Join},
      {"select",
       [](const Value& v, const Arguments& a) { return Sieve(v, a, true); }},
      {"reject",
       [](const Value& v, const Arguments& a) { return Sieve(v, a, false); }},
      {"replace",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         ASSIGN_OR_RETURN(const std::string text, ToText(v));
         ASSIGN_OR_RETURN(std::string replaced, ReplaceText(text, a));
         return Value(std::move(replaced));
       }},
  };
  return table;
}

using Test = std::function<bool(const Value&, const Arguments&)>;

const std::map<std::string, Test>& Tests() {
  static const auto& table = *new std::map<std::string, Test>{
      {"defined",
       [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
      {"undefined",
       [](const Value& v, const Arguments&) { return v.is_undefined(); }},
      {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
      {"string",
       [](const Value& v, const Arguments&) { return v.is_string(); }},
      {"mapping", [](const Value& v, const Arguments&) { return v.is_dict(); }},
      {"iterable",
       [](const Value& v, const Arguments&) {
         return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined();
       }},
      {"sequence",
       [](const Value& v, const Arguments&) {
         return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined();
       }},
      {"number",
       [](const Value& v, const Arguments&) { return v.is_number(); }},
      {"integer", [](const Value& v, const Arguments&) { return v.is_int(); }},
      {"float", [](const Value& v, const Arguments&) { return v.is_double(); }},
      {"boolean", [](const Value& v, const Arguments&) { return v.is_bool(); }},
      {"true",
       [](const Value& v, const Arguments&) {
         return v.is_bool() && v.boolean();
       }},
      {"false",
       [](const Value& v, const Arguments&) {
         return v.is_bool() && !v.boolean();
       }},
      {"equalto",
       [](const Value& v, const Arguments& a) {
         return v.Equals(a.At(0, "other"));
       }},
  };
  return table;
}

using Method =
    std::function<absl::StatusOr<Value>(const Value&, const Arguments&)>;

Method StripMethod(bool left, bool right) {
  return [left, right](const Value& v,
                       const Arguments& a) -> absl::StatusOr<Value> {
    if (!v.is_string()) return Refuse("strip of something not a string");
    return Value(Strip(v.string(), a.At(0, "chars"), left, right));
  };
}

Method AffixMethod(bool at_start) {
  return
      [at_start](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
        const Value affix = a.At(0, "affix");
        if (!v.is_string() || !affix.is_string()) {
          return Refuse("startswith and endswith need strings");
        }
        return Value(at_start ? absl::StartsWith(v.string(), affix.string())
                              : absl::EndsWith(v.string(), affix.string()));
      };
}

Method FilterMethod(const char* name) {
  return [name](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
    if (!v.is_string()) {
      return Refuse(absl::StrCat(name, " of a ", v.TypeName()));
    }
    return Filters().at(name)(v, a);
  };
}

const std::map<std::string, Method>& Methods() {
  static const auto& table = *new std::map<std::string, Method>{
      {"strip", StripMethod(true, true)},
      {"lstrip", StripMethod(true, false)},
      {"rstrip", StripMethod(false, true)},
      {"startswith", AffixMethod(true)},
      {"endswith", AffixMethod(false)},
      {"upper", FilterMethod("upper")},
      {"lower", FilterMethod("lower")},
      {"replace", FilterMethod("replace")},
      {"split",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         if (!v.is_string()) return Refuse("split of something not a string");
         ASSIGN_OR_RETURN(
             List parts,
             SplitText(v.string(), a.At(0, "sep"), a.At(1, "maxsplit")));
         return Value(std::move(parts));
       }},
      {"items",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         if (!v.is_dict()) return Refuse("items of something not a dict");
         return Value(Items(v));
       }},
      {"keys",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         if (!v.is_dict()) return Refuse("keys of something not a dict");
         ASSIGN_OR_RETURN(List keys, ToList(v));
         return Value(std::move(keys));
       }},
      {"get",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         const Value key = a.At(0, "key");
         if (!v.is_dict() || !key.is_string()) return Refuse("get of no dict");
         const Value found = v.Get(key.string());
         if (!found.is_undefined()) return found;
         const Value fallback = a.At(1, "default");
         return fallback.is_undefined() ? Value::MakeNone() : fallback;
       }},
  };
  return table;
}

absl::StatusOr<Value> Range(const Arguments& arguments) {
  for (const Value& value : arguments.positional) {
    if (!value.is_int()) return Refuse("range needs integers");
  }
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3) return Refuse("range takes 1 to 3 integers");
  const int64_t start = count > 1 ? arguments.positional[0].integer() : 0;
  const int64_t stop = arguments.positional[count > 1 ? 1 : 0].integer();
  const int64_t step = count > 2 ? arguments.positional[2].integer() : 1;
  if (step == 0) return Refuse("range with step 0");
  List items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      return absl::ResourceExhaustedError("range is too long");
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value(std::move(items));
}

}  // namespace

Value Arguments::At(size_t index, const std::string& keyword) const {
  if (index < positional.size()) return positional[index];
  for (const auto& [name, value] : keywords) {
    if (name == keyword) return value;
  }
  return Value::MakeUndefined(keyword);
}

bool IsKnownFilter(const std::string& name) { return Filters().contains(name); }
bool IsKnownTest(const std::string& name) { return Tests().contains(name); }
bool IsKnownMethod(const std::string& name) { return Methods().contains(name); }
bool IsKnownFunction(const std::string& name) {
  return name == "range" || name == "namespace" || name == "raise_exception" ||
         name == kClock;
}

absl::StatusOr<Value> ApplyFilter(const std::string& name,
                                  const Value& operand,
                                  const Arguments& arguments) {
  return Filters().at(name)(operand, arguments);
}

absl::StatusOr<bool> ApplyTest(const std::string& name,
                               const Value& operand,
                               const Arguments& arguments) {
  return Tests().at(name)(operand, arguments);
}

absl::StatusOr<Value> CallMethod(const std::string& name,
                                 const Value& object,
                                 const Arguments& arguments) {
  return Methods().at(name)(object, arguments);
}

absl::StatusOr<Value> CallFunction(const std::string& name,
                                   const Arguments& arguments) {
  if (name == "range") return Range(arguments);
  if (name == "namespace") {
    return Value::MakeNamespace(arguments.keywords);
  }
  if (name == kClock) {
    return Refuse(
        "the template needs the date of today, which a run that is resumed "
        "must not depend on");
  }
  ASSIGN_OR_RETURN(const std::string message,
                   ToText(arguments.At(0, "message")));
  return Refuse(absl::StrCat("the template refuses: ", message));
}

absl::StatusOr<Value> Slice(const Value& object,
                            const Value& start,
                            const Value& stop,
                            const Value& step) {
  if (!object.is_list() && !object.is_string()) {
    return Refuse(absl::StrCat("a ", object.TypeName(), " cannot be sliced"));
  }
  ASSIGN_OR_RETURN(const List items, ToList(object));
  const auto size = static_cast<int64_t>(items.size());
  const int64_t stride = step.is_int() ? step.integer() : 1;
  if (stride == 0) return Refuse("slice step is 0");
  // As Python clips the bounds.
  const auto bound = [&](const Value& value, int64_t absent) {
    if (!value.is_int()) return absent;
    int64_t index = value.integer();
    if (index < 0) index += size;
    return stride > 0 ? std::clamp<int64_t>(index, 0, size)
                      : std::clamp<int64_t>(index, -1, size - 1);
  };
  const int64_t first = bound(start, stride > 0 ? 0 : size - 1);
  const int64_t last = bound(stop, stride > 0 ? size : -1);
  List picked;
  for (int64_t i = first; stride > 0 ? i < last : i > last;) {
    picked.push_back(items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (object.is_list()) return Value(std::move(picked));
  std::string text;
  for (const Value& letter : picked) text += letter.string();
  return Value(std::move(text));
}

}  // namespace dapd::jinja
