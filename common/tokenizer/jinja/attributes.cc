#include "common/tokenizer/jinja/attributes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/container_methods.h"
#include "common/tokenizer/jinja/python_text.h"
#include "common/tokenizer/jinja/string_methods.h"

namespace dapd::jinja {
namespace {

// In transformers a template may not change a list or a dict; calling such a
// method is an error.
bool WouldChange(const Value& value, const std::string& name) {
  static const auto& of_dicts = *new std::set<std::string>{
      "clear", "pop", "popitem", "setdefault", "update"};
  static const auto& of_lists = *new std::set<std::string>{"append",
                                                           "clear",
                                                           "pop",
                                                           "reverse",
                                                           "insert",
                                                           "sort",
                                                           "extend",
                                                           "remove"};
  if (value.is_dict()) return of_dicts.contains(name);
  return value.is_list() && value.shape() == Shape::kList &&
         of_lists.contains(name);
}

Value MethodOf(const Value& value,
               const std::string& name,
               const Builtins& methods) {
  const auto found = methods.find(name);
  if (found == methods.end()) return Value::MakeUndefined(name);
  const Builtin& method = found->second;
  return Value::MakeObject(
      {.name = name,
       .self = {value},
       .call =
           [name, value, &method](const Arguments& arguments) {
             return RunBuiltin(name, method, value, arguments);
           },
       .attribute = nullptr});
}

Value NumberAttribute(const Value& number, const std::string& name) {
  const bool is_float = number.is_double();
  if (name == "real") {
    return is_float ? number : Value(number.integer());
  }
  if (name == "imag") return is_float ? Value(0.0) : Value(int64_t{0});
  if (name == "numerator" && !is_float) return Value(number.integer());
  if (name == "denominator" && !is_float) return Value(int64_t{1});
  return MethodOf(number, name, NumberMethods());
}

// Returns the item of a list or text at this index; undefined if there is none.
absl::StatusOr<Value> ItemAt(const Value& value, int64_t index) {
  if (value.is_list()) {
    const auto size = static_cast<int64_t>(value.list().size());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return Value::MakeUndefined("index");
    return value.list()[static_cast<size_t>(index)];
  }
  ASSIGN_OR_RETURN(const List letters, Iterate(value));
  const auto size = static_cast<int64_t>(letters.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) return Value::MakeUndefined("index");
  const Value& letter = letters[static_cast<size_t>(index)];
  return value.is_markup() ? Value::MakeMarkup(letter.string()) : letter;
}

absl::Status IsNotDefined(const Value& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", value.undefined().name, "' is undefined"));
}

// Returns the entry of a dict or the item of a sequence.
absl::StatusOr<Value> EntryOf(const Value& value, const Value& key) {
  if (value.is_dict()) return value.Get(key);
  if ((value.is_sequence() || value.is_string()) && key.is_whole()) {
    return ItemAt(value, key.integer());
  }
  return Value::MakeUndefined(key.is_string() ? key.string() : "item");
}

}  // namespace

Value GetOwnAttribute(const Value& value, const std::string& name) {
  const Value none = Value::MakeUndefined(name);
  if (value.is_namespace()) return value.Get(name);
  if (value.is_object()) {
    return value.object().attribute ? value.object().attribute(name) : none;
  }
  if (absl::StartsWith(name, "__") && absl::EndsWith(name, "__")) {
    return Value::MakeUndefined(name, /*is_unsafe=*/true);
  }
  if (WouldChange(value, name)) {
    return Value::MakeUndefined(name, /*is_unsafe=*/true);
  }
  if (value.is_string()) return MethodOf(value, name, StringMethods());
  if (value.is_number()) return NumberAttribute(value, name);
  if (value.is_dict()) return MethodOf(value, name, DictMethods());
  if (!value.is_list()) return none;
  if (value.shape() == Shape::kGroup) {
    if (name == "grouper") return value.list()[0];
    if (name == "list") return value.list()[1];
  }
  return value.is_sequence() ? MethodOf(value, name, ListMethods()) : none;
}

absl::StatusOr<Value> GetAttribute(const Value& value,
                                   const std::string& name) {
  if (value.is_undefined()) return IsNotDefined(value);
  Value own = GetOwnAttribute(value, name);
  if (!own.is_undefined() || own.undefined().is_unsafe) return own;
  return value.is_dict() ? value.Get(name) : Value::MakeUndefined(name);
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) return IsNotDefined(value);
  ASSIGN_OR_RETURN(Value entry, EntryOf(value, key));
  if (!entry.is_undefined() || !key.is_string()) return entry;
  return GetOwnAttribute(value, key.string());
}

}  // namespace dapd::jinja
