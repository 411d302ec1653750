// The names that an enum's values have in configurations, on command lines, in
// messages and in files: one table beside the enum, in the order of its values,
// from which everything here follows.
//
//   enum class OnBadRow { kFail, kSkip };
//   constexpr auto NameTable(OnBadRow) { return std::array{"fail", "skip"}; }
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace dapd {

template <typename Enum>
constexpr const char* NameOf(Enum value) {
  return NameTable(value)[static_cast<size_t>(value)];
}

// Returns the names in the order of the table.
template <typename Enum>
std::vector<std::string> NamesOf() {
  const auto table = NameTable(Enum{});
  return {table.begin(), table.end()};
}

// Returns nothing for a name that is not in the table.
template <typename Enum>
std::optional<Enum> ParseName(absl::string_view name) {
  constexpr auto kTable = NameTable(Enum{});
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (name == kTable[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// Returns "fail, skip", for messages.
template <typename Enum>
std::string JoinedNames() {
  return absl::StrJoin(NameTable(Enum{}), ", ");
}

// A variable of some enum type, read and written by name. A table of settings
// or a command line needs to know no more of it. The variable must outlive
// this.
class EnumVariable {
 public:
  template <typename Enum>
  explicit EnumVariable(Enum* variable)
      : variable_(variable),
        name_([](const void* from) {
          return NameOf(*static_cast<const Enum*>(from));
        }),
        set_([](void* to, absl::string_view name) {
          const std::optional<Enum> value = ParseName<Enum>(name);
          if (value.has_value()) *static_cast<Enum*>(to) = *value;
          return value.has_value();
        }),
        names_(NamesOf<Enum>) {}

  const char* Name() const { return name_(variable_); }
  // Returns false, without a change, for a name that is not in the table.
  bool Set(absl::string_view name) const { return set_(variable_, name); }
  std::vector<std::string> names() const { return names_(); }

 private:
  void* variable_;
  const char* (*name_)(const void* from);
  bool (*set_)(void* to, absl::string_view name);
  std::vector<std::string> (*names_)();
};

}  // namespace dapd
