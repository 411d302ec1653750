// Readers of the fields of a YAML map, from which the readers of terms and of
// teachers are made.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/enum_names.h"

namespace dapd {

// Reads one value into the variable that it was made for, which must outlive
// it. Returns an empty text, or what is wrong with the value.
using Field = std::function<std::string(const YAML::Node& node)>;
using Fields = std::map<std::string, Field>;

// Reads a map that contains no other keys than `fields` and all keys of
// `required`. Returns an empty text, or the first problem, after the name of
// its field.
std::string ReadMap(const YAML::Node& node,
                    const Fields& fields,
                    const std::vector<std::string>& required);

Field TextField(std::string* target);
Field NumberField(double* target);   // from -1e6 to 1e6
Field LimitField(double* target);    // above 0; .inf means no limit
Field IntegerField(int64_t* target,  // from `least` to `most`
                   int64_t least = 0,
                   int64_t most = 1'000'000);
Field FlagField(bool* target);

template <typename Enum>
Field NamedField(Enum* target) {
  return [=](const YAML::Node& node) -> std::string {
    const std::optional<Enum> value =
        node.IsScalar() ? ParseName<Enum>(node.Scalar()) : std::nullopt;
    if (!value.has_value()) {
      return absl::StrCat("'",
                          node.IsScalar() ? node.Scalar() : "",
                          "' is not one of ",
                          JoinedNames<Enum>());
    }
    *target = *value;
    return "";
  };
}

}  // namespace dapd
