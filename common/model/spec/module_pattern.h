// Compares names of modules with the regular expressions and lists of a PEFT
// configuration, which say by them the modules that they mean.
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

// A regular expression of Python's, as far as it means the same to RE2, which
// matches in linear time. An expression with look-around, references or
// anything else that the two read differently is refused by name.
class ModulePattern {
 public:
  // INVALID_ARGUMENT.
  static absl::StatusOr<ModulePattern> Parse(const std::string& expression);

  // As Python's re.fullmatch.
  bool Matches(const std::string& module) const;
  // The number in the first group of an expression that matches the beginning,
  // as Python's re.match; -1 if it does not.
  int64_t NumberInBeginning(const std::string& module) const;

 private:
  explicit ModulePattern(std::shared_ptr<const re2::RE2> expression);
  std::shared_ptr<const re2::RE2> expression_;
};

// Modules that a value of PEFT's stands for: a text is an expression, which has
// to match the whole name, a list has names, or ends of names behind a dot.
class ModuleSet {
 public:
  // Null and an empty value stand for none. INVALID_ARGUMENT.
  static absl::StatusOr<ModuleSet> Parse(const nlohmann::json& value);

  bool Contains(const std::string& module) const;
  // Whether a list has the whole name.
  bool HasWholeName(const std::string& module) const;
  bool IsExpression() const { return pattern_.has_value(); }
  // The entries, if the pattern is a list.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::optional<ModulePattern> pattern_;
  std::vector<std::string> names_;
};

}  // namespace dapd
