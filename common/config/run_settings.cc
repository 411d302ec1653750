#include "common/config/run_settings.h"

#include <algorithm>
#include <vector>

#include "common/config/config_keys.h"
#include "common/config/preset_terms.h"

namespace dapd {
namespace {

bool ReadsEma(const Config& config) {
  const std::vector<TeacherPass> passes =
      TeacherPasses(ExpandTerms(config.objective));
  return std::ranges::any_of(passes, [](const TeacherPass& pass) {
    return pass.weights == WeightSet::kEma;
  });
}

}  // namespace

std::map<std::string, std::string> ResultSettings(const Config& config) {
  Config copy = config;
  Config defaults;
  const std::vector<ConfigKey> keys = ConfigKeys(copy);
  const std::vector<ConfigKey> default_keys = ConfigKeys(defaults);
  std::map<std::string, std::string> settings;
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = keys[i];
    // Only a run that reads it, so that others go on from older checkpoints.
    if (key.name == "teacher.ema_rate" && !ReadsEma(config)) continue;
    const std::string value = FormatValue(key);
    if (key.counts_unless_default && value == FormatValue(default_keys[i])) {
      continue;
    }
    if (!key.may_change) settings[key.name] = value;
  }
  return settings;
}

bool MayChangeOnResume(const std::string& key) {
  Config config;
  return std::ranges::any_of(ConfigKeys(config), [&](const ConfigKey& known) {
    return known.name == key && known.may_change;
  });
}

}  // namespace dapd
