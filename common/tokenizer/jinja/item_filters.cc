// Filters that test, change or compare the items of a list.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/attribute_path.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_text.h"
#include "common/tokenizer/jinja/template_tests.h"

namespace dapd::jinja {
namespace {

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

const Builtins& ItemFilters() {
  static const auto& table = *new Builtins{
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
