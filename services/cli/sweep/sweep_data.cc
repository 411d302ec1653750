#include "services/cli/sweep/sweep_data.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/config/config_keys.h"
#include "common/data/dataset.h"
#include "common/data/expected_answer.h"
#include "common/data/model_text.h"
#include "common/data/view_limits.h"

namespace dapd {
namespace {

// Returns all settings that decide whether a row can be read and fits.
std::string DataSettings(Config config) {
  static const auto& sections = *new std::set<std::string>{
      "data", "evaluation", "model", "objective", "prompts", "rollout"};
  std::string settings;
  for (const ConfigKey& key : ConfigKeys(config)) {
    if (sections.contains(key.name.substr(0, key.name.find('.'))) ||
        key.name == "trainer.pack_tokens") {
      absl::StrAppend(&settings, FormatValue(key), "\n");
    }
  }
  return settings;
}

absl::Status CheckData(const Config& config) {
  RETURN_IF_ERROR(RequireDataPath(config.data));
  ASSIGN_OR_RETURN(const ModelText base, ReadModelText(config));
  const int64_t context = base.model.max_positions;
  ASSIGN_OR_RETURN(Dataset data,
                   ReadDataset(config.data.path, MakeDatasetOptions(config)));
  RETURN_IF_ERROR(ApplyAnswerRule(config, &data));
  RETURN_IF_ERROR(ApplyViewLimits(config, context, base.text, &data));
  if (config.evaluation.path.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      Dataset held_out,
      ReadDataset(config.evaluation.path, MakeHeldOutOptions(config)));
  return ApplyHeldOutLimits(config, context, base.text, &held_out);
}

}  // namespace

absl::Status CheckSweepData(const SweepPlan& plan) {
  std::set<std::string> seen;
  std::vector<std::string> problems;
  absl::Status first;
  for (const SweepRun& run : plan.runs) {
    if (run.done || !seen.insert(DataSettings(run.config)).second) continue;
    const absl::Status checked = CheckData(run.config);
    if (checked.ok()) continue;
    if (first.ok()) first = checked;
    problems.push_back(
        absl::StrCat(run.name, ": ", std::string(checked.message())));
  }
  if (first.ok()) return absl::OkStatus();
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat(
          "runs cannot read their data:\n  ", absl::StrJoin(problems, "\n  "))),
      ExitCodeOf(first));
}

}  // namespace dapd
