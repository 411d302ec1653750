// Rows of the table of configuration keys (config_keys.h), and the sections
// that it is made of.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "common/config/config_keys.h"

namespace dapd {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kMillion = 1e6;
// The smallest divisor, with which quotients still fit into single precision.
inline constexpr double kMillionth = 1e-6;

inline ConfigKey Text(std::string name,
                      std::string* target,
                      std::string help,
                      std::vector<std::string> choices = {}) {
  ConfigKey key{std::move(name), target, std::move(help)};
  key.choices = std::move(choices);
  return key;
}

// Returns the row of a value of an enum, given by its name
// (common/base/enum_names.h). `choices`, if given, limits the accepted values.
template <typename Enum>
ConfigKey OneOf(std::string name,
                Enum* target,
                std::string help,
                std::initializer_list<Enum> choices = {}) {
  ConfigKey key{std::move(name), EnumVariable(target), std::move(help)};
  for (const Enum choice : choices) key.choices.emplace_back(NameOf(choice));
  if (key.choices.empty()) key.choices = NamesOf<Enum>();
  return key;
}

template <typename Number>
ConfigKey Range(std::string name,
                Number* target,
                double min,
                double max,
                std::string help) {
  ConfigKey key{std::move(name), target, std::move(help)};
  key.min = min;
  key.max = max;
  return key;
}

inline ConfigKey Above(std::string name,
                       double* target,
                       double min,
                       double max,
                       std::string help) {
  ConfigKey key = Range(std::move(name), target, min, max, std::move(help));
  key.above_min = true;
  return key;
}

inline ConfigKey Any(std::string name,
                     ConfigKey::Target target,
                     std::string help) {
  return {std::move(name), target, std::move(help)};
}

std::vector<ConfigKey> RunKeys(Config& c);
std::vector<ConfigKey> ModelKeys(Config& c);
std::vector<ConfigKey> LoraKeys(Config& c);
std::vector<ConfigKey> DataKeys(Config& c);
std::vector<ConfigKey> ObjectiveKeys(Config& c);
std::vector<ConfigKey> PromptsKeys(Config& c);
std::vector<ConfigKey> RolloutKeys(Config& c);
std::vector<ConfigKey> TeacherKeys(Config& c);
std::vector<ConfigKey> TeachersKeys(Config& c);
std::vector<ConfigKey> TrainerKeys(Config& c);
std::vector<ConfigKey> GraderKeys(Config& c);
std::vector<ConfigKey> EvaluationKeys(Config& c);
std::vector<ConfigKey> CheckpointKeys(Config& c);
std::vector<ConfigKey> MetricsKeys(Config& c);
std::vector<ConfigKey> LogKeys(Config& c);
std::vector<ConfigKey> SecurityKeys(Config& c);

}  // namespace dapd
