#include "common/config/yaml_fields.h"

#include <cmath>

#include "absl/strings/numbers.h"

#include "common/config/yaml_text.h"

namespace dapd {
namespace {

bool ParseNumber(const YAML::Node& node, double* number) {
  return node.IsScalar() && ParseDouble(node.Scalar(), number);
}

}  // namespace

std::string ReadMap(const YAML::Node& node,
                    const Fields& fields,
                    const std::vector<std::string>& required) {
  if (!node.IsMap()) return "is not a map";
  for (const std::string& name : required) {
    if (!node[name]) return absl::StrCat(name, " is missing");
  }
  for (const auto& entry : node) {
    const std::string name = entry.first.Scalar();
    const auto field = fields.find(name);
    if (field == fields.end()) return absl::StrCat("unknown key '", name, "'");
    const std::string problem = field->second(entry.second);
    if (!problem.empty()) return absl::StrCat(name, ": ", problem);
  }
  return "";
}

Field TextField(std::string* target) {
  return [target](const YAML::Node& node) -> std::string {
    if (!node.IsScalar()) return "is not a string";
    *target = node.Scalar();
    return "";
  };
}

Field NumberField(double* target) {
  return [target](const YAML::Node& node) -> std::string {
    constexpr double kMost = 1e6;
    return ParseNumber(node, target) && std::abs(*target) <= kMost
               ? ""
               : absl::StrCat("must be a number from -", kMost, " to ", kMost);
  };
}

Field LimitField(double* target) {
  return [target](const YAML::Node& node) -> std::string {
    return ParseNumber(node, target) && *target > 0.0
               ? ""
               : "must be a number above 0";
  };
}

Field IntegerField(int64_t* target, int64_t least, int64_t most) {
  return [=](const YAML::Node& node) -> std::string {
    return node.IsScalar() && absl::SimpleAtoi(node.Scalar(), target) &&
                   *target >= least && *target <= most
               ? ""
               : absl::StrCat("must be an integer from ", least, " to ", most);
  };
}

Field FlagField(bool* target) {
  return [target](const YAML::Node& node) -> std::string {
    if (!node.IsScalar() ||
        (node.Scalar() != "true" && node.Scalar() != "false")) {
      return "must be true or false";
    }
    *target = node.Scalar() == "true";
    return "";
  };
}

}  // namespace dapd
