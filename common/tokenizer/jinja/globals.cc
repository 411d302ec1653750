#include "common/tokenizer/jinja/globals.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/python_repr.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;
constexpr char kClock[] = "strftime_now";

// Returns the entries of dict(...) and namespace(...): the entries of the given
// dict or pairs, if any, and the keywords.
absl::StatusOr<Dict> EntriesOf(const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    return absl::InvalidArgumentError(
        "dict and namespace take one dict, and keywords");
  }
  DictBuilder entries;
  if (!arguments.positional.empty()) {
    const Value& given = arguments.positional[0];
    if (given.is_dict()) {
      for (const auto& [key, value] : given.dict()) {
        RETURN_IF_ERROR(entries.Set(key, value));
      }
    } else {
      ASSIGN_OR_RETURN(const List pairs, Iterate(given));
      for (const Value& pair : pairs) {
        ASSIGN_OR_RETURN(const List parts, Iterate(pair));
        if (parts.size() != 2) {
          return absl::InvalidArgumentError("dict needs pairs");
        }
        RETURN_IF_ERROR(entries.Set(parts[0], parts[1]));
      }
    }
  }
  for (const auto& [key, value] : arguments.keywords) {
    RETURN_IF_ERROR(CheckPart(value));
    entries.Set(key, value);
  }
  return entries.Take();
}

absl::StatusOr<Value> MakeNamespaceOf(const Arguments& arguments) {
  ASSIGN_OR_RETURN(Dict entries, EntriesOf(arguments));
  for (const auto& [key, value] : entries) {
    if (key.is_string()) RETURN_IF_ERROR(CheckEntryName(key.string()));
  }
  return Value::MakeNamespace(std::move(entries));
}

absl::StatusOr<Value> Range(const Arguments& arguments) {
  for (const Value& value : arguments.positional) {
    if (!value.is_whole())
      return absl::InvalidArgumentError("range needs integers");
  }
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.keywords.empty())
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
  return Value(std::move(items), Shape::kRange);
}

Value Function(std::string name,
               std::function<absl::StatusOr<Value>(const Arguments&)> call) {
  return Value::MakeObject({.name = std::move(name),
                            .self = {},
                            .call = std::move(call),
                            .attribute = nullptr});
}

// Makes cycler(...): its `next()` returns the items in turn.
absl::StatusOr<Value> MakeCycler(const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.keywords.empty()) {
    return absl::InvalidArgumentError("cycler needs items");
  }
  const auto items = std::make_shared<const List>(arguments.positional);
  const auto place = std::make_shared<size_t>(0);
  return Value::MakeObject(
      {.name = "cycler",
       .self = {},
       .call = nullptr,
       .attribute = [items, place](const std::string& name) {
         if (name == "current") return (*items)[*place];
         if (name == "pos") return Value(static_cast<int64_t>(*place));
         if (name == "items") return Value(List(*items), Shape::kTuple);
         if (name == "next") {
           return Function(
               name, [items, place](const Arguments&) -> absl::StatusOr<Value> {
                 const size_t now = *place;
                 *place = (now + 1) % items->size();
                 return (*items)[now];
               });
         }
         if (name == "reset") {
           return Function(name,
                           [place](const Arguments&) -> absl::StatusOr<Value> {
                             *place = 0;
                             return Value::MakeNone();
                           });
         }
         return Value::MakeUndefined(name);
       }});
}

// Makes joiner(separator): each call except the first returns the separator.
absl::StatusOr<Value> MakeJoiner(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const List values,
                   Signature("sep?").Bind("joiner", arguments));
  const Value separator =
      values[0].is_undefined() ? Value(std::string(", ")) : values[0];
  const auto is_used = std::make_shared<bool>(false);
  return Function(
      "joiner",
      [separator, is_used](const Arguments&) -> absl::StatusOr<Value> {
        if (std::exchange(*is_used, true)) return separator;
        return Value(std::string());
      });
}

absl::StatusOr<Value> Raise(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const List values,
                   Signature("message").Bind("raise_exception", arguments));
  ASSIGN_OR_RETURN(const std::string message, ToText(values[0]));
  return absl::InvalidArgumentError(
      absl::StrCat("the template refuses: ", message));
}

}  // namespace

absl::Status CheckEntryName(const std::string& name) {
  if (!absl::StartsWith(name, "_")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a namespace's entry may not begin with an underscore, as '",
                   name,
                   "' does"));
}

const Names& Globals() {
  static const auto& names = *new Names{
      {"range", Function("range", Range)},
      {"dict",
       Function("dict",
                [](const Arguments& arguments) -> absl::StatusOr<Value> {
                  ASSIGN_OR_RETURN(Dict entries, EntriesOf(arguments));
                  return Value(std::move(entries));
                })},
      {"namespace", Function("namespace", MakeNamespaceOf)},
      {"cycler", Function("cycler", MakeCycler)},
      {"joiner", Function("joiner", MakeJoiner)},
      {"lipsum",
       Function("lipsum",
                [](const Arguments&) -> absl::StatusOr<Value> {
                  return absl::InvalidArgumentError(
                      "the function 'lipsum' is not supported: a resumed run "
                      "would have other prompts");
                })},
      {"raise_exception", Function("raise_exception", Raise)},
  };
  return names;
}

absl::Status RefuseUndefinedCall(const Value& callee) {
  const Undefined& undefined = callee.undefined();
  if (undefined.name == kClock) {
    return absl::InvalidArgumentError(
        "the template needs today's date, on which a resumed run must not "
        "depend; write a date in place of this call of strftime_now");
  }
  if (undefined.is_unsafe) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'",
        undefined.name,
        "' would change a value or leave the sandbox, which a chat template "
        "may not do"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", undefined.name, "' is called and is undefined"));
}

}  // namespace dapd::jinja
