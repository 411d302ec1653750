// Compares names of modules with the regular expressions and lists by which a
// PEFT configuration selects modules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/json.h"

namespace re2 {
class RE2;
}  // namespace re2

namespace dapd {

// A regular expression of Python's that has the same meaning in RE2, which
// matches in linear time. Refuses, by name, look-around, references and
// anything else that Python and RE2 read differently.
class ModulePattern {
 public:
  // Returns INVALID_ARGUMENT for such an expression.
  static absl::StatusOr<ModulePattern> Parse(const std::string& expression);

  // Matches like Python's re.fullmatch.
  bool Matches(const std::string& module) const;
  // Matches the beginning like Python's re.match, and returns the number in the
  // first group; -1 without a match.
  int64_t NumberInBeginning(const std::string& module) const;

 private:
  explicit ModulePattern(std::shared_ptr<const re2::RE2> expression);
  std::shared_ptr<const re2::RE2> expression_;
};

// The modules that a value of PEFT's selects: a text is an expression, which
// must match the whole name; a list has names, or ends of names behind a dot.
class ModuleSet {
 public:
  // Null and an empty value select nothing. Returns INVALID_ARGUMENT for an
  // expression that ModulePattern refuses.
  static absl::StatusOr<ModuleSet> Parse(const nlohmann::json& value);

  bool Contains(const std::string& module) const;
  // Returns whether the list has the whole name.
  bool HasWholeName(const std::string& module) const;
  bool IsExpression() const { return pattern_.has_value(); }
  // The entries of a list.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::optional<ModulePattern> pattern_;
  std::vector<std::string> names_;
};

}  // namespace dapd
