#include "common/tokenizer/jinja/budget.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <string>

namespace dapd::jinja {
namespace {

// Lists in lists: what recurses over a value ends.
constexpr int kMaxValueDepth = 64;
// Macros that call each other: what recurses over blocks and expressions ends.
// One macro alone can have twice TokenStream's kMaxDepth of them.
constexpr int kMaxLevel = 500;
constexpr int64_t kBytesPerStep = 64;
constexpr int64_t kEntriesPerStep = 4;

// Going through all that the value holds.
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

// A list knows where each is.
int64_t LookupCost(const Value& value) {
  return value.is_list() ? 0 : Cost(value);
}

int64_t BinaryCost(const std::string& op,
                   const Value& left,
                   const Value& right) {
  const bool whole = op == "==" || op == "!=" || op == "in" || op == "not in";
  return whole ? WholeCost(left.weight() + right.weight())
               : Cost(left) + Cost(right);
}

int64_t BuiltinCost(const std::string& name,
                    const Value& object,
                    const Arguments& arguments) {
  const int64_t whole_cost = WholeCost(object.weight());
  // Each item is entered once for each part of the attribute.
  const auto parts = [](const Value& attribute) -> int64_t {
    const std::string path = attribute.is_string() ? attribute.string() : "";
    return 1 + std::count(path.begin(), path.end(), '.');
  };
  if (name == "selectattr" || name == "rejectattr" || name == "map") {
    return parts(arguments.At(0, "attribute")) * whole_cost + Cost(arguments);
  }
  if (name == "sort" || name == "dictsort") {
    // As often as the number of items can be halved, and once for the keys.
    const int64_t rounds = std::bit_width(static_cast<uint64_t>(whole_cost));
    return (parts(arguments.At(2, "attribute")) + rounds) * whole_cost +
           Cost(arguments);
  }
  static const auto& whole = *new std::set<std::string>{
      "tojson", "join", "equalto", "eq", "==", "ne", "!=", "select", "reject"};
  const int64_t cost = whole.contains(name) ? whole_cost : Cost(object);
  return cost + Cost(arguments);
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
