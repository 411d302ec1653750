#include "common/tokenizer/jinja/item_filters.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

// Of what map makes, by Value::weight.
constexpr int64_t kMaxMapped = int64_t{16} << 20;

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
    return absl::InvalidArgumentError(
        "select and reject need the name of a known test");
  }
  List kept;
  // Jinja takes whatever is false for an empty list.
  if (!v.Truthy()) return Value(std::move(kept));
  ASSIGN_OR_RETURN(const Value listed, ApplyFilter("list", v, {}));
  const Arguments rest = WithoutFirst(a);
  for (const Value& item : listed.list()) {
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

absl::StatusOr<Value> Follow(const List& path, const Value& item) {
  Value found = item;
  for (const Value& key : path) {
    ASSIGN_OR_RETURN(found, GetItem(found, key));
  }
  return found;
}

// The first argument is what to test of each item.
Filter AttributeSieveFilter(bool wanted) {
  return [wanted](const Value& v, const Arguments& a) -> absl::StatusOr<Value> {
    if (a.positional.empty() || !a.positional[0].is_string()) {
      return absl::InvalidArgumentError(
          "selectattr and rejectattr need the name of an attribute");
    }
    const List path = AttributePath(a.positional[0].string());
    return Sieve(v, WithoutFirst(a), wanted, [&](const Value& item) {
      return Follow(path, item);
    });
  };
}

// By the filter that the first argument names, or to the attribute of that
// keyword.
absl::StatusOr<Value> Map(const Value& v, const Arguments& a) {
  const Value attribute = a.keywords.size() == 1 && a.positional.empty()
                              ? a.At(1, "attribute")
                              : Value();
  const Value filter = a.keywords.empty() ? a.At(0, "") : Value();
  const bool by_name = filter.is_string() && a.positional.size() == 1 &&
                       IsKnownFilter(filter.string());
  if (!attribute.is_string() && !by_name) {
    return absl::InvalidArgumentError(
        "map needs the name of a known filter, and nothing else, or "
        "attribute='name'");
  }
  List path;
  if (attribute.is_string()) path = AttributePath(attribute.string());
  List mapped;
  if (!v.Truthy()) return Value(std::move(mapped));
  ASSIGN_OR_RETURN(const Value listed, ApplyFilter("list", v, {}));
  int64_t weight = 0;
  for (const Value& item : listed.list()) {
    ASSIGN_OR_RETURN(
        Value made,
        by_name ? ApplyFilter(filter.string(), item, {}) : Follow(path, item));
    weight += made.weight();
    if (weight > kMaxMapped) {
      return absl::ResourceExhaustedError("map builds too large a list");
    }
    mapped.push_back(std::move(made));
  }
  return Value(std::move(mapped));
}

bool IsLess(const Value& a, const Value& b) {
  if (a.is_string()) return a.string() < b.string();
  return a.is_double() || b.is_double() ? a.number() < b.number()
                                        : a.integer() < b.integer();
}

// `items` in the order of their keys; of equal ones the first comes first.
absl::StatusOr<Value> Sorted(const List& items,
                             List keys,
                             bool case_sensitive,
                             bool reverse) {
  for (Value& key : keys) {
    const bool alike = key.is_string() ? keys[0].is_string()
                                       : key.is_number() && keys[0].is_number();
    if (!alike && keys.size() > 1) {
      return absl::InvalidArgumentError(
          "what is sorted is neither all texts nor all numbers");
    }
    if (key.is_string() && !case_sensitive) {
      key = Value(Recase(key.string(), false));
    }
  }
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? IsLess(keys[b], keys[a]) : IsLess(keys[a], keys[b]);
  });
  List sorted;
  for (const size_t index : order) sorted.push_back(items[index]);
  return Value(std::move(sorted));
}

absl::StatusOr<Value> Sort(const Value& v, const Arguments& a) {
  const Value attribute = a.At(2, "attribute");
  if (attribute.is_string() && absl::StrContains(attribute.string(), ',')) {
    return absl::InvalidArgumentError(
        "sort by several attributes is not supported");
  }
  ASSIGN_OR_RETURN(const Value listed, ApplyFilter("list", v, {}));
  List path;
  if (attribute.is_string()) path = AttributePath(attribute.string());
  List keys;
  for (const Value& item : listed.list()) {
    ASSIGN_OR_RETURN(Value key, Follow(path, item));
    keys.push_back(std::move(key));
  }
  return Sorted(listed.list(),
                std::move(keys),
                a.At(1, "case_sensitive").Truthy(),
                a.At(0, "reverse").Truthy());
}

absl::StatusOr<Value> DictSort(const Value& v, const Arguments& a) {
  if (!v.is_dict()) return absl::InvalidArgumentError("dictsort needs a dict");
  const Value by = a.At(1, "by");
  if (!by.is_undefined() && !by.Equals(Value(std::string("key"))) &&
      !by.Equals(Value(std::string("value")))) {
    return absl::InvalidArgumentError("dictsort sorts by 'key' or by 'value'");
  }
  const bool by_value = by.Equals(Value(std::string("value")));
  List items;
  List keys;
  for (const auto& [key, value] : v.dict()) {
    items.emplace_back(List{Value(key), value});
    keys.push_back(by_value ? value : Value(key));
  }
  return Sorted(items,
                std::move(keys),
                a.At(0, "case_sensitive").Truthy(),
                a.At(2, "reverse").Truthy());
}

}  // namespace

const std::map<std::string, Filter>& ItemFilters() {
  static const auto& table = *new std::map<std::string, Filter>{
      {"select", SieveFilter(true)},
      {"reject", SieveFilter(false)},
      {"selectattr", AttributeSieveFilter(true)},
      {"rejectattr", AttributeSieveFilter(false)},
      {"map", Map},
      {"sort", Sort},
      {"dictsort", DictSort},
  };
  return table;
}

bool IsLazyFilter(const std::string& name) {
  return name != "sort" && name != "dictsort" && ItemFilters().contains(name);
}

}  // namespace dapd::jinja
