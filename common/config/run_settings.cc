#include "common/config/run_settings.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

#include "common/config/config_keys.h"
#include "common/config/preset_terms.h"

namespace dapd {
namespace {

// A name that ends in '.' or '_' stands for all keys that begin with it.
constexpr std::array<absl::string_view, 29> kMayChange = {
    "run.name",
    "run.output_dir",
    "run.num_threads",
    "run.resume",
    "run.rollout_workers",
    "run.teacher_workers",
    "model.path",
    "data.path",
    "rollout.addresses",
    "rollout.listen",
    "teacher.addresses",
    "teacher.listen",
    "teacher.streaming",
    "teacher.prefix_memory_mib",
    "trainer.listen",
    "trainer.steps",
    "trainer.rpc_timeout_seconds",
    "trainer.peer_timeout_seconds",
    "trainer.when_done",
    "trainer.rank",
    "trainer.rendezvous",
    "evaluation.",
    "checkpoint.",
    "metrics.",
    "security.",
    "trainer.train_while_sampling",
    "trainer.ahead_memory_mib",
    "trainer.shard_base",
    "trainer.activation_memory_mib"};

bool MayChange(const std::string& key) {
  for (const absl::string_view name : kMayChange) {
    const bool prefix = absl::EndsWith(name, ".") || name == "trainer.rank";
    if (prefix ? absl::StartsWith(key, name) : key == name) return true;
  }
  return false;
}

bool ReadsEma(const Config& config) {
  const std::vector<TeacherPass> passes =
      TeacherPasses(ExpandTerms(config.objective));
  return std::any_of(passes.begin(), passes.end(), [](const TeacherPass& pass) {
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
    if (!MayChange(key.name)) settings[key.name] = FormatValue(key);
  }
  return settings;
}

}  // namespace dapd
