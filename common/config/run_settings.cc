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
  std::map<std::string, std::string> settings;
  for (const ConfigKey& key : ConfigKeys(copy)) {
    // Only a run that reads it, so that others go on from older checkpoints.
    if (key.name == "teacher.ema_rate" && !ReadsEma(config)) continue;
    if (key.name == "lora.start_from" && config.lora.start_from.empty()) {
      continue;
    }
    if (!key.may_change) settings[key.name] = FormatValue(key);
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
