#include "common/tokenizer/jinja/builtins.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/item_filters.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;
// May be asked for ("is defined") and is not there.
constexpr char kClock[] = "strftime_now";

using Test = std::function<bool(const Value&, const Arguments&)>;

bool IsEqual(const Value& v, const Arguments& a) {
  return v.Equals(a.At(0, "other"));
}

bool IsUnequal(const Value& v, const Arguments& a) { return !IsEqual(v, a); }

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
      {"equalto", IsEqual},
      {"eq", IsEqual},
      {"==", IsEqual},
      {"ne", IsUnequal},
      {"!=", IsUnequal},
  };
  return table;
}

using Method =
    std::function<absl::StatusOr<Value>(const Value&, const Arguments&)>;

Method StripMethod(bool left, bool right) {
  return [left, right](const Value& v,
                       const Arguments& a) -> absl::StatusOr<Value> {
    if (!v.is_string())
      return absl::InvalidArgumentError("strip needs a string");
    return Value(Strip(v.string(), a.At(0, "chars"), left, right));
  };
}

Method AffixMethod(bool at_start) {
  return [at_start](const Value& v,
                    const Arguments& a) -> absl::StatusOr<Value> {
    const Value affix = a.At(0, "affix");
    if (!v.is_string() || !affix.is_string()) {
      return absl::InvalidArgumentError("startswith and endswith need strings");
    }
    return Value(at_start ? absl::StartsWith(v.string(), affix.string())
                          : absl::EndsWith(v.string(), affix.string()));
  };
}

Method FilterMethod(const char* name) {
  return [name](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
    if (!v.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " cannot be applied to ", v.TypeName()));
    }
    return ApplyFilter(name, v, a);
  };
}

// In transformers a template may not change a list or a dict either, and finds
// out when it tries: in branches for tools, which are not taken here.
Method ForbiddenMethod(const char* name) {
  return [name](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
    return absl::InvalidArgumentError(
        absl::StrCat("'",
                     name,
                     "' would change a ",
                     v.TypeName(),
                     ", which a chat template may not do"));
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
      {"capitalize", FilterMethod("capitalize")},
      {"title",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         if (!v.is_string())
           return absl::InvalidArgumentError("title needs a string");
         return Value(Title(v.string()));
       }},
      {"split",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         if (!v.is_string())
           return absl::InvalidArgumentError("split needs a string");
         ASSIGN_OR_RETURN(
             List parts,
             SplitText(v.string(), a.At(0, "sep"), a.At(1, "maxsplit")));
         return Value(std::move(parts));
       }},
      {"items",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         if (!v.is_dict())
           return absl::InvalidArgumentError("items needs a dict");
         return ApplyFilter("items", v, {});
       }},
      {"keys",
       [](const Value& v, const Arguments&) -> absl::StatusOr<Value> {
         if (!v.is_dict())
           return absl::InvalidArgumentError("keys needs a dict");
         return ApplyFilter("list", v, {});
       }},
      {"get",
       [](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
         const Value key = a.At(0, "key");
         if (!v.is_dict() || !key.is_string())
           return absl::InvalidArgumentError("get needs a dict and a string");
         const Value found = v.Get(key.string());
         if (!found.is_undefined()) return found;
         const Value fallback = a.At(1, "default");
         return fallback.is_undefined() ? Value::MakeNone() : fallback;
       }},
      {"append", ForbiddenMethod("append")},
      {"extend", ForbiddenMethod("extend")},
      {"insert", ForbiddenMethod("insert")},
      {"pop", ForbiddenMethod("pop")},
      {"update", ForbiddenMethod("update")},
  };
  return table;
}

// What may stand between the brackets, in the order of arguments without a
// name; nothing where a name is not here.
const std::map<std::string, std::vector<std::string>>& Parameters() {
  static const auto& table =
      *new std::map<std::string, std::vector<std::string>>{
          {"trim", {"chars"}},
          {"strip", {"chars"}},
          {"lstrip", {"chars"}},
          {"rstrip", {"chars"}},
          {"startswith", {"affix"}},
          {"endswith", {"affix"}},
          {"split", {"sep", "maxsplit"}},
          {"get", {"key", "default"}},
          {"default", {"default_value", "boolean"}},
          {"join", {"d"}},
          {"replace", {"old", "new"}},
          {"tojson", {"ensure_ascii", "indent"}},
          {"append", {"item"}},
          {"extend", {"items"}},
          {"insert", {"index", "item"}},
          {"pop", {"key", "default"}},
          {"update", {"other"}},
          {"sort", {"reverse", "case_sensitive", "attribute"}},
          {"dictsort", {"case_sensitive", "by", "reverse"}},
          {"equalto", {"other"}},
          {"eq", {"other"}},
          {"==", {"other"}},
          {"ne", {"other"}},
          {"!=", {"other"}},
      };
  return table;
}

// dict(...) and what namespace(...) begins with: the entries of a dict, if
// there is one, and the keywords.
absl::StatusOr<Dict> Entries(const Arguments& arguments) {
  if (arguments.positional.size() > 1 || (arguments.positional.size() == 1 &&
                                          !arguments.positional[0].is_dict())) {
    return absl::InvalidArgumentError(
        "dict and namespace take one dict, and keywords");
  }
  DictBuilder entries;
  if (!arguments.positional.empty()) {
    for (const auto& [key, value] : arguments.positional[0].dict()) {
      entries.Set(key, value);
    }
  }
  for (const auto& [key, value] : arguments.keywords) {
    RETURN_IF_ERROR(CheckPart(value));
    entries.Set(key, value);
  }
  return entries.Take();
}

absl::StatusOr<Value> Range(const Arguments& arguments) {
  for (const Value& value : arguments.positional) {
    if (!value.is_int())
      return absl::InvalidArgumentError("range needs integers");
  }
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3)
    return absl::InvalidArgumentError("range takes 1 to 3 integers");
  const int64_t start = count > 1 ? arguments.positional[0].integer() : 0;
  const int64_t stop = arguments.positional[count > 1 ? 1 : 0].integer();
  const int64_t step = count > 2 ? arguments.positional[2].integer() : 1;
  if (step == 0) return absl::InvalidArgumentError("range with step 0");
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

bool IsKnownTest(const std::string& name) { return Tests().contains(name); }
bool IsKnownMethod(const std::string& name) { return Methods().contains(name); }
bool IsKnownFunction(const std::string& name) {
  return name == "range" || name == "namespace" || name == "dict" ||
         name == "raise_exception" || name == kClock;
}

absl::Status CheckArguments(const std::string& name,
                            const Arguments& arguments) {
  if (IsLazyFilter(name)) return absl::OkStatus();
  static const auto& none = *new std::vector<std::string>;
  const auto found = Parameters().find(name);
  const std::vector<std::string>& known =
      found == Parameters().end() ? none : found->second;
  if (arguments.positional.size() > known.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'",
                     name,
                     "' with ",
                     arguments.positional.size(),
                     " arguments is not supported"));
  }
  for (const auto& [keyword, value] : arguments.keywords) {
    if (std::find(known.begin(), known.end(), keyword) == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", keyword, "' of '", name, "' is not supported"));
    }
  }
  return absl::OkStatus();
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
  if (name == "namespace" || name == "dict") {
    ASSIGN_OR_RETURN(Dict entries, Entries(arguments));
    return name == "dict" ? Value(std::move(entries))
                          : Value::MakeNamespace(std::move(entries));
  }
  if (name == kClock) {
    return absl::InvalidArgumentError(
        "the template needs today's date, on which a resumed run must not "
        "depend; write a date in place of this call of strftime_now");
  }
  ASSIGN_OR_RETURN(const std::string message,
                   ToText(arguments.At(0, "message")));
  return absl::InvalidArgumentError(
      absl::StrCat("the template refuses: ", message));
}

absl::StatusOr<Value> Slice(const Value& object,
                            const Value& start,
                            const Value& stop,
                            const Value& step) {
  if (!object.is_list() && !object.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", object.TypeName(), " cannot be sliced"));
  }
  ASSIGN_OR_RETURN(const Value listed,
                   object.is_list() ? object : ApplyFilter("list", object, {}));
  const List& items = listed.list();
  const auto size = static_cast<int64_t>(items.size());
  const int64_t stride = step.is_int() ? step.integer() : 1;
  if (stride == 0) return absl::InvalidArgumentError("slice step is 0");
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
