#include "common/config/run_settings.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"

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

// Some keys are newer than checkpoints that can still be resumed. They count
// only if the run reads them.
bool IsUnread(const std::string& key, const Config& config) {
  const RolloutSection& rollout = config.rollout;
  if (key == "teacher.ema_rate" || key == "teacher.ema_start") {
    return !ReadsEma(config);
  }
  if (key == "lora.start_from") return config.lora.start_from.empty();
  if (key == "rollout.source") return rollout.source == ReferenceSource::kGiven;
  if (key == "rollout.unverified") {
    return rollout.source != ReferenceSource::kVerified;
  }
  if (key == "rollout.group_size") return rollout.group_size == 1;
  return absl::StartsWith(key, "objective.sdpo.") &&
         !ReadsView(ExpandTerms(config.objective), ViewName::kSiblingRollout);
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
    if (IsUnread(key.name, config)) continue;
    const std::string value = FormatValue(key);
    if (key.counts_unless_default && value == FormatValue(default_keys[i])) {
      continue;
    }
    if (!key.may_change) settings[key.name] = value;
  }
  // Grades of two graders differ. Their programs and addresses may change.
  if (config.grader.is_given()) settings["grader"] = "the user's own";
  return settings;
}

bool MayChangeOnResume(const std::string& key) {
  Config config;
  return std::ranges::any_of(ConfigKeys(config), [&](const ConfigKey& known) {
    return known.name == key && known.may_change;
  });
}

}  // namespace dapd
