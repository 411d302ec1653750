#include "common/tokenizer/jinja/filters.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace dapd::jinja {
namespace {

// Returns null if there is no such filter.
const Builtin* FindFilter(const std::string& name) {
  for (const auto* table : {&TextFilters(), &NumberFilters(), &ListFilters()}) {
    const auto found = table->find(name);
    if (found != table->end()) return &found->second;
  }
  return nullptr;
}

}  // namespace

bool IsKnownFilter(const std::string& name) {
  return FindFilter(name) != nullptr;
}

absl::StatusOr<Value> ApplyFilter(const std::string& name,
                                  const Value& operand,
                                  const Arguments& arguments) {
  const Builtin* filter = FindFilter(name);
  if (filter == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no filter '", name, "'"));
  }
  return RunBuiltin(name, *filter, operand, arguments);
}

bool IsLazyFilter(const std::string& name) {
  static const auto& names = *new std::set<std::string>{"select",
                                                        "reject",
                                                        "selectattr",
                                                        "rejectattr",
                                                        "map",
                                                        "items",
                                                        "unique",
                                                        "batch",
                                                        "slice"};
  return names.contains(name);
}

bool GoesThrough(const std::string& name) {
  static const auto& names = *new std::set<std::string>{
      "list", "join", "sort", "sum", "min", "max", "groupby", "reverse"};
  return names.contains(name) || (IsLazyFilter(name) && name != "items");
}

}  // namespace dapd::jinja
