#include "common/tokenizer/jinja/budget.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <string>

namespace dapd::jinja {
namespace {

// Limits the nesting of lists, so that every recursion over a value ends.
constexpr int kMaxValueDepth = 64;
// Limits the recursion over blocks and expressions when macros call each other.
// A macro alone can have twice TokenStream's kMaxDepth of them.
constexpr int kMaxLevel = 500;
constexpr int64_t kBytesPerStep = 64;
constexpr int64_t kEntriesPerStep = 4;

// Returns the cost of reading everything that the value holds.
int64_t WholeCost(int64_t weight) { return weight / kBytesPerStep; }

}  // namespace

int64_t Cost(const Value& value) {
  if (value.is_string()) {
    return static_cast<int64_t>(value.string().size()) / kBytesPerStep;
  }
  if (value.is_list()) {
    return static_cast<int64_t>(value.list().size()) / kEntriesPerStep;
  }
  if (value.is_dict()) {
    return static_cast<int64_t>(value.dict().size()) / kEntriesPerStep;
  }
  if (value.is_namespace()) {
    return static_cast<int64_t>(value.entries().size()) / kEntriesPerStep;
  }
  return 0;
}

int64_t Cost(const Arguments& arguments) {
  int64_t cost = 0;
  for (const Value& value : arguments.positional) cost += Cost(value);
  for (const auto& [name, value] : arguments.keywords) cost += Cost(value);
  return cost;
}

// A list finds an item by its index without a search.
int64_t LookupCost(const Value& value) {
  return value.is_list() ? 0 : Cost(value);
}

int64_t BinaryCost(const std::string& op,
                   const Value& left,
                   const Value& right) {
  // These operators read everything that lists and dicts hold.
  static const auto& whole = *new std::set<std::string>{
      "==", "!=", "in", "not in", "<", "<=", ">", ">=", "~", "%"};
  return whole.contains(op) ? WholeCost(left.weight() + right.weight())
                            : Cost(left) + Cost(right);
}

int64_t BuiltinCost(const std::string& name,
                    const Value& object,
                    const Arguments& arguments) {
  const int64_t whole_cost = WholeCost(object.weight());
  // Each part of an attribute is looked up in each item.
  int64_t parts = 1;
  int64_t weight = object.weight();
  const auto look_at = [&](const Value& value) {
    weight += value.weight();
    if (!value.is_string()) return;
    parts += std::count(value.string().begin(), value.string().end(), '.');
  };
  for (const Value& value : arguments.positional) look_at(value);
  for (const auto& [keyword, value] : arguments.keywords) look_at(value);
  if (name == "selectattr" || name == "rejectattr" || name == "map" ||
      name == "min" || name == "max" || name == "sum" || name == "unique") {
    return parts * whole_cost + Cost(arguments);
  }
  if (name == "sort" || name == "dictsort" || name == "groupby") {
    // The sort takes as many rounds as the number of items can be halved, and
    // one for the keys.
    const int64_t rounds = std::bit_width(static_cast<uint64_t>(whole_cost));
    return (parts + rounds) * whole_cost + Cost(arguments);
  }
  static const auto& whole = *new std::set<std::string>{
      "tojson", "join",   "select",   "reject",      "string",      "format",
      "in",     "sameas", "equalto",  "eq",          "==",          "ne",
      "!=",     "gt",     "lessthan", "lt",          "greaterthan", "<",
      "<=",     ">",      ">=",       "ge",          "le",          ".count",
      ".index", ".join",  ".format",  ".format_map", "urlencode"};
  return whole.contains(name) ? WholeCost(weight)
                              : Cost(object) + Cost(arguments);
}

absl::Status Budget::CountSteps(int64_t count) {
  steps_ += count;
  if (steps_ > limits_.max_steps) {
    return absl::ResourceExhaustedError("the template takes too many steps");
  }
  return absl::OkStatus();
}

absl::Status Budget::Descend() {
  if (++level_ > kMaxLevel) {
    return absl::ResourceExhaustedError(
        "macros call each other, or themselves, too deeply");
  }
  return absl::OkStatus();
}

absl::Status Budget::CheckOutput(size_t bytes) const {
  if (bytes > limits_.max_output_bytes) {
    return absl::ResourceExhaustedError("the template's output is too long");
  }
  return absl::OkStatus();
}

absl::Status Budget::CheckSize(const Value& value) const {
  if (value.depth() > kMaxValueDepth) {
    return absl::ResourceExhaustedError("a value is nested too deeply");
  }
  if (value.weight() > static_cast<int64_t>(limits_.max_output_bytes)) {
    return absl::ResourceExhaustedError("a value is too large");
  }
  return absl::OkStatus();
}

}  // namespace dapd::jinja
