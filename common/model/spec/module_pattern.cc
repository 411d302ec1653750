#include "common/model/spec/module_pattern.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "re2/re2.h"

namespace dapd {

using nlohmann::json;

absl::StatusOr<ModulePattern> ModulePattern::Parse(
    const std::string& expression) {
  const auto refuse = [&](const std::string& reason) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the expression '", Printable(expression), "' is not read: ", reason));
  };
  // RE2 reads both differently from Python.
  for (const char* other : {"{,", "[["}) {
    if (absl::StrContains(expression, other)) {
      return refuse(absl::StrCat("it contains ", other));
    }
  }
  RE2::Options options;
  options.set_log_errors(false);
  auto parsed = std::make_shared<const RE2>(expression, options);
  if (!parsed->ok()) return refuse(parsed->error());
  return ModulePattern(std::move(parsed));
}

ModulePattern::ModulePattern(std::shared_ptr<const RE2> expression)
    : expression_(std::move(expression)) {}

bool ModulePattern::Matches(const std::string& module) const {
  return RE2::FullMatch(module, *expression_);
}

int64_t ModulePattern::NumberInBeginning(const std::string& module) const {
  re2::StringPiece rest(module);
  int64_t number = -1;
  if (!RE2::Consume(&rest, *expression_, &number)) return -1;
  return number;
}

absl::StatusOr<ModuleSet> ModuleSet::Parse(const json& value) {
  ModuleSet set;
  if (value.is_null() || (value.is_structured() && value.empty())) return set;
  if (value.is_string()) {
    ASSIGN_OR_RETURN(set.pattern_,
                     ModulePattern::Parse(value.get<std::string>()));
    return set;
  }
  if (!value.is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(
        value.dump(), " is neither a list of modules nor an expression"));
  }
  for (const json& name : value) {
    if (!name.is_string() || name.get<std::string>().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name.dump(), " is no name of a module"));
    }
    set.names_.push_back(name.get<std::string>());
  }
  return set;
}

bool ModuleSet::Contains(const std::string& module) const {
  if (pattern_.has_value()) return pattern_->Matches(module);
  return std::ranges::any_of(names_, [&](const std::string& name) {
    return module == name || absl::EndsWith(module, absl::StrCat(".", name));
  });
}

bool ModuleSet::HasWholeName(const std::string& module) const {
  return std::ranges::find(names_, module) != names_.end();
}

}  // namespace dapd
