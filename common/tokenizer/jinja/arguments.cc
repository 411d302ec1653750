#include "common/tokenizer/jinja/arguments.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/base/status_macros.h"

namespace dapd::jinja {

Signature::Signature(const char* parameters) {
  for (absl::string_view name :
       absl::StrSplit(parameters, ' ', absl::SkipEmpty())) {
    if (name == "*") {
      takes_all_ = true;
    } else if (name == "/") {
      by_place_only_ = true;
    } else {
      if (!absl::ConsumeSuffix(&name, "?")) ++required_;
      names_.emplace_back(name);
    }
  }
}

absl::StatusOr<List> Signature::Bind(const std::string& name,
                                     const Arguments& arguments) const {
  if (takes_all_) return List{};
  if (arguments.positional.size() > names_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'",
                     name,
                     "' takes no more than ",
                     names_.size(),
                     " arguments, and has ",
                     arguments.positional.size()));
  }
  List values = arguments.positional;
  std::vector<bool> given(names_.size());
  std::fill_n(given.begin(), values.size(), true);
  values.resize(names_.size());
  for (const auto& [keyword, value] : arguments.keywords) {
    const auto place = static_cast<size_t>(
        std::find(names_.begin(), names_.end(), keyword) - names_.begin());
    if (by_place_only_ || place == names_.size() || given[place]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", name, "' takes no argument '", keyword, "', or got it twice"));
    }
    values[place] = value;
    given[place] = true;
  }
  for (size_t i = 0; i < required_; ++i) {
    if (given[i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' needs the argument '", names_[i], "'"));
  }
  return values;
}

absl::StatusOr<Value> RunBuiltin(const std::string& name,
                                 const Builtin& builtin,
                                 const Value& object,
                                 const Arguments& arguments) {
  ASSIGN_OR_RETURN(List values, builtin.signature.Bind(name, arguments));
  return builtin.run({object, std::move(values), arguments});
}

absl::StatusOr<int64_t> IntegerOr(const Value& value, int64_t absent) {
  if (value.is_undefined() || value.is_none()) return absent;
  if (value.is_whole()) return value.integer();
  return absl::InvalidArgumentError(
      absl::StrCat("an integer is needed, not a ", value.TypeName()));
}

}  // namespace dapd::jinja
