// Implements filters of lists: filters that leave the items as they are, and
// filters that test, change or compare the items.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/attributes.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_repr.h"
#include "common/tokenizer/jinja/python_text.h"
#include "common/tokenizer/jinja/template_tests.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {
namespace {

// Represents the argument `attribute` of a filter, which selects a part of each
// item: "name", "a.b.0", or a number.
class AttributePath {
 public:
  // A path without parts selects the item itself.
  AttributePath() = default;
  // Takes a text whose parts are separated by dots, or a number; undefined and
  // None have no parts. Returns INVALID_ARGUMENT for any other value.
  static absl::StatusOr<AttributePath> Of(const Value& attribute);

  // `fallback` replaces an undefined part, unless `fallback` is None or
  // undefined.
  absl::StatusOr<Value> Follow(const Value& item,
                               const Value& fallback = Value()) const;

 private:
  List parts_;
};

absl::StatusOr<AttributePath> AttributePath::Of(const Value& attribute) {
  AttributePath path;
  if (attribute.is_undefined() || attribute.is_none()) return path;
  if (attribute.is_whole()) {
    path.parts_.push_back(attribute);
    return path;
  }
  if (!attribute.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an attribute must be a name, not a ", attribute.TypeName()));
  }
  for (const absl::string_view part : absl::StrSplit(attribute.string(), '.')) {
    int64_t index = 0;
    const bool is_index =
        std::all_of(part.begin(), part.end(), absl::ascii_isdigit) &&
        absl::SimpleAtoi(part, &index);
    path.parts_.push_back(is_index ? Value(index) : Value(std::string(part)));
  }
  return path;
}

absl::StatusOr<Value> AttributePath::Follow(const Value& item,
                                            const Value& fallback) const {
  Value found = item;
  for (const Value& key : parts_) {
    ASSIGN_OR_RETURN(found, GetItem(found, key));
    if (found.is_undefined() && !fallback.is_undefined() &&
        !fallback.is_none()) {
      found = fallback;
    }
  }
  return found;
}

constexpr int64_t kMaxListParts = 1 << 20;

absl::StatusOr<Value> LengthFilter(const Call& call) {
  const Value& v = call.object;
  if (v.is_undefined()) return Value(int64_t{0});
  if (v.is_dict()) return Value(static_cast<int64_t>(v.dict().size()));
  if (v.is_list()) return Value(static_cast<int64_t>(v.list().size()));
  if (v.is_string()) {
    return Value(static_cast<int64_t>(Characters(v.string()).size()));
  }
  if (v.is_object() && v.object().name == "loop") {
    return v.object().attribute("length");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a ", v.TypeName(), " has no length"));
}

absl::StatusOr<Value> JoinFilter(const Call& call) {
  std::string mark;
  if (!call[0].is_undefined()) {
    ASSIGN_OR_RETURN(mark, ToText(call[0]));
  }
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Of(call[1]));
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) joined += mark;
    ASSIGN_OR_RETURN(const Value item, path.Follow(items[i]));
    ASSIGN_OR_RETURN(const std::string text, ToText(item));
    joined += text;
    if (joined.size() > kMaxBuiltBytes) {
      return absl::ResourceExhaustedError("join builds too long a text");
    }
  }
  return Value(std::move(joined));
}

absl::StatusOr<Value> FirstItem(const Call& call) {
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  if (items.empty()) return Value::MakeUndefined("first");
  if (call.object.is_generator()) {
    call.object.generator().GiveBack(items.size() - 1);
  }
  return items.front();
}

absl::StatusOr<Value> LastItem(const Call& call) {
  if (call.object.is_generator()) {
    return absl::InvalidArgumentError("a generator cannot be reversed");
  }
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  return items.empty() ? Value::MakeUndefined("last") : items.back();
}

absl::StatusOr<Value> ItemsFilter(const Call& call) {
  List items;
  if (call.object.is_undefined()) return Value::MakeGenerator(std::move(items));
  if (!call.object.is_dict()) {
    return absl::InvalidArgumentError("items needs a dict");
  }
  for (const auto& [key, value] : call.object.dict()) {
    items.emplace_back(List{key, value}, Shape::kTuple);
  }
  return Value::MakeGenerator(std::move(items));
}

absl::StatusOr<Value> ReverseFilter(const Call& call) {
  ASSIGN_OR_RETURN(List items, Iterate(call.object));
  std::reverse(items.begin(), items.end());
  if (!call.object.is_string()) return Value::MakeGenerator(std::move(items));
  std::string turned;
  for (const Value& letter : items) turned += letter.string();
  return Value(std::move(turned));
}

absl::StatusOr<Value> BatchFilter(const Call& call) {
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  ASSIGN_OR_RETURN(const int64_t size, IntegerOr(call[0], 0));
  List batches;
  List batch;
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) {
      batches.emplace_back(std::exchange(batch, {}));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (call.has(1) && static_cast<int64_t>(batch.size()) < size) {
      if (size > kMaxListParts) {
        return absl::ResourceExhaustedError("batch builds too large a list");
      }
      batch.resize(static_cast<size_t>(size), call[1]);
    }
    batches.emplace_back(std::move(batch));
  }
  return Value::MakeGenerator(std::move(batches));
}

absl::StatusOr<Value> SliceFilter(const Call& call) {
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  ASSIGN_OR_RETURN(const int64_t count, IntegerOr(call[0], 0));
  if (count == 0) return absl::InvalidArgumentError("slice into 0 parts");
  if (count > kMaxListParts) {
    return absl::ResourceExhaustedError("slice builds too large a list");
  }
  List slices;
  const auto size = static_cast<int64_t>(items.size());
  const int64_t longer = count > 0 ? size % count : 0;
  auto next = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = size / count + (i < longer ? 1 : 0);
    List slice(next, next + length);
    next += length;
    if (call.has(1) && i >= longer) slice.push_back(call[1]);
    slices.emplace_back(std::move(slice));
  }
  return Value::MakeGenerator(std::move(slices));
}

// Limits the result of map, by Value::weight.
constexpr int64_t kMaxMapped = int64_t{16} << 20;

// Returns a text in lower case, any other key unchanged.
Value IgnoreCase(const Value& key) {
  return key.is_string() ? Value(Recase(key.string(), false)) : key;
}

// Returns the items for which a test gives `wanted`, applied to the item or to
// a part of it. The positional argument at index `skipped` names the test;
// without a name the test is whether the value is true.
absl::StatusOr<Value> Sieve(const Call& call,
                            bool wanted,
                            const AttributePath& path,
                            size_t skipped) {
  List kept;
  // Jinja treats every false value as an empty list.
  if (!call.object.Truthy()) return Value::MakeGenerator(std::move(kept));
  const List& given = call.arguments.positional;
  Arguments rest;
  rest.keywords = call.arguments.keywords;
  const bool has_test = given.size() > skipped;
  if (has_test) {
    if (!given[skipped].is_string()) {
      return absl::InvalidArgumentError(
          "select and reject need the name of a test");
    }
    rest.positional.assign(given.begin() + static_cast<int64_t>(skipped) + 1,
                           given.end());
  }
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value tested, path.Follow(item));
    bool holds = tested.Truthy();
    if (has_test) {
      ASSIGN_OR_RETURN(holds, ApplyTest(given[skipped].string(), tested, rest));
    }
    if (holds == wanted) kept.push_back(item);
  }
  return Value::MakeGenerator(std::move(kept));
}

Builtin SieveFilter(bool wanted) {
  return {"*", [wanted](const Call& call) {
            return Sieve(call, wanted, AttributePath(), 0);
          }};
}

// The first argument selects the part of each item to test.
Builtin AttributeSieveFilter(bool wanted) {
  return {"*", [wanted](const Call& call) -> absl::StatusOr<Value> {
            if (call.arguments.positional.empty()) {
              return absl::InvalidArgumentError(
                  "selectattr and rejectattr need the name of an attribute");
            }
            ASSIGN_OR_RETURN(const AttributePath path,
                             AttributePath::Of(call.arguments.positional[0]));
            return Sieve(call, wanted, path, 1);
          }};
}

// Maps items by the filter that the first argument names, or to the attribute
// of the keyword `attribute`.
absl::StatusOr<Value> MapFilter(const Call& call) {
  List mapped;
  if (!call.object.Truthy()) return Value::MakeGenerator(std::move(mapped));
  Value attribute;
  Value fallback;
  Arguments rest = call.arguments;
  const bool by_name = !rest.positional.empty();
  if (by_name) {
    if (!rest.positional[0].is_string()) {
      return absl::InvalidArgumentError("map needs the name of a filter");
    }
    rest.positional.erase(rest.positional.begin());
  } else {
    for (const auto& [name, value] : rest.keywords) {
      if (name != "attribute" && name != "default") {
        return absl::InvalidArgumentError(
            absl::StrCat("map takes no argument '", name, "'"));
      }
      (name == "default" ? fallback : attribute) = value;
    }
    if (attribute.is_undefined()) {
      return absl::InvalidArgumentError(
          "map needs the name of a filter, or attribute='name'");
    }
  }
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Of(attribute));
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  int64_t weight = 0;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(
        Value made,
        by_name ? ApplyFilter(call.arguments.positional[0].string(), item, rest)
                : path.Follow(item, fallback));
    weight += made.weight();
    if (weight > kMaxMapped) {
      return absl::ResourceExhaustedError("map builds too large a list");
    }
    RETURN_IF_ERROR(CheckPart(made));
    mapped.push_back(std::move(made));
  }
  return Value::MakeGenerator(std::move(mapped));
}

// Returns the indices of `keys` in sorted order; equal keys keep their order.
absl::StatusOr<std::vector<size_t>> OrderOf(const List& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  absl::Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    const auto less =
        reverse ? IsLess(keys[b], keys[a]) : IsLess(keys[a], keys[b]);
    if (!less.ok()) status = less.status();
    return less.ok() && *less;
  });
  RETURN_IF_ERROR(status);
  return order;
}

absl::StatusOr<Value> Sorted(const List& items,
                             const List& keys,
                             bool reverse) {
  ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderOf(keys, reverse));
  List sorted;
  for (const size_t index : order) sorted.push_back(items[index]);
  return Value(std::move(sorted));
}

// Sorts by one attribute, or by several that are separated by commas.
absl::StatusOr<Value> SortFilter(const Call& call) {
  std::vector<AttributePath> paths;
  if (call[2].is_string()) {
    for (const auto& name : absl::StrSplit(call[2].string(), ',')) {
      ASSIGN_OR_RETURN(paths.emplace_back(),
                       AttributePath::Of(Value(std::string(name))));
    }
  } else {
    ASSIGN_OR_RETURN(paths.emplace_back(), AttributePath::Of(call[2]));
  }
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  List keys;
  for (const Value& item : items) {
    List parts;
    for (const AttributePath& path : paths) {
      ASSIGN_OR_RETURN(Value part, path.Follow(item));
      parts.push_back(call[1].Truthy() ? std::move(part) : IgnoreCase(part));
    }
    keys.emplace_back(std::move(parts));
  }
  return Sorted(items, keys, call[0].Truthy());
}

absl::StatusOr<Value> DictSort(const Call& call) {
  if (!call.object.is_dict()) {
    return absl::InvalidArgumentError("dictsort needs a dict");
  }
  const std::string by = call[1].is_string() ? call[1].string() : "key";
  if (by != "key" && by != "value") {
    return absl::InvalidArgumentError("dictsort sorts by 'key' or by 'value'");
  }
  List items;
  List keys;
  for (const auto& [key, value] : call.object.dict()) {
    items.emplace_back(List{key, value}, Shape::kTuple);
    const Value& sorted_by = by == "value" ? value : key;
    keys.push_back(call[0].Truthy() ? sorted_by : IgnoreCase(sorted_by));
  }
  return Sorted(items, keys, call[2].Truthy());
}

absl::StatusOr<Value> GroupBy(const Call& call) {
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Of(call[0]));
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  List written;
  List keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, path.Follow(item, call[1]));
    keys.push_back(call[2].Truthy() ? key : IgnoreCase(key));
    written.push_back(std::move(key));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderOf(keys, false));
  List groups;
  for (size_t i = 0; i < order.size();) {
    const size_t first = order[i];
    List members;
    while (i < order.size() && keys[order[i]].Equals(keys[first])) {
      members.push_back(items[order[i++]]);
    }
    groups.emplace_back(List{written[first], Value(std::move(members))},
                        Shape::kGroup);
  }
  return Value(std::move(groups));
}

absl::StatusOr<Value> UniqueFilter(const Call& call) {
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Of(call[1]));
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  // Its keys are the items that were seen.
  DictBuilder seen;
  List unique;
  size_t count = 0;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value key, path.Follow(item));
    RETURN_IF_ERROR(
        seen.Set(call[0].Truthy() ? key : IgnoreCase(key), Value::MakeNone()));
    if (seen.size() == count) continue;
    count = seen.size();
    unique.push_back(item);
  }
  return Value::MakeGenerator(std::move(unique));
}

Builtin Extreme(bool largest) {
  return {"case_sensitive? attribute?",
          [largest](const Call& call) -> absl::StatusOr<Value> {
            ASSIGN_OR_RETURN(const AttributePath path,
                             AttributePath::Of(call[1]));
            ASSIGN_OR_RETURN(const List items, Iterate(call.object));
            if (items.empty()) {
              return Value::MakeUndefined(largest ? "max" : "min");
            }
            size_t best = 0;
            Value best_key;
            for (size_t i = 0; i < items.size(); ++i) {
              ASSIGN_OR_RETURN(Value key, path.Follow(items[i]));
              if (!call[0].Truthy()) key = IgnoreCase(key);
              if (i > 0) {
                ASSIGN_OR_RETURN(
                    const bool better,
                    largest ? IsLess(best_key, key) : IsLess(key, best_key));
                if (!better) continue;
              }
              best = i;
              best_key = std::move(key);
            }
            return items[best];
          }};
}

absl::StatusOr<Value> SumFilter(const Call& call) {
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Of(call[0]));
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  Value sum = call[1].is_undefined() ? Value(int64_t{0}) : call[1];
  if (sum.is_string()) {
    return absl::InvalidArgumentError("sum adds no strings; use join");
  }
  int64_t weight = 0;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value part, path.Follow(item));
    ASSIGN_OR_RETURN(sum, ApplyBinary("+", sum, part));
    weight += sum.weight();
    if (weight > kMaxMapped) {
      return absl::ResourceExhaustedError("sum builds too large a list");
    }
  }
  return sum;
}

}  // namespace

const Builtins& ListFilters() {
  static const auto& table = *new Builtins{
      {"batch", {"linecount fill_with?", BatchFilter}},
      {"count", {"", LengthFilter}},
      {"first", {"", FirstItem}},
      {"items", {"", ItemsFilter}},
      {"join", {"d? attribute?", JoinFilter}},
      {"last", {"", LastItem}},
      {"length", {"", LengthFilter}},
      {"list",
       {"",
        [](const Call& c) -> absl::StatusOr<Value> {
          ASSIGN_OR_RETURN(List items, Iterate(c.object));
          return Value(std::move(items));
        }}},
      {"random",
       {"*",
        [](const Call&) -> absl::StatusOr<Value> {
          return absl::InvalidArgumentError(
              "the filter 'random' is not supported: a resumed run would have "
              "other prompts");
        }}},
      {"reverse", {"", ReverseFilter}},
      {"slice", {"slices fill_with?", SliceFilter}},
      {"dictsort", {"case_sensitive? by? reverse?", DictSort}},
      {"groupby", {"attribute default? case_sensitive?", GroupBy}},
      {"map", {"*", MapFilter}},
      {"max", Extreme(true)},
      {"min", Extreme(false)},
      {"reject", SieveFilter(false)},
      {"rejectattr", AttributeSieveFilter(false)},
      {"select", SieveFilter(true)},
      {"selectattr", AttributeSieveFilter(true)},
      {"sort", {"reverse? case_sensitive? attribute?", SortFilter}},
      {"sum", {"attribute? start?", SumFilter}},
      {"unique", {"case_sensitive? attribute?", UniqueFilter}},
  };
  return table;
}

}  // namespace dapd::jinja
