#include "services/cli/sweep/sweep_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/thread_share.h"
#include "common/config/config_keys.h"
#include "common/config/load_config.h"
#include "common/config/run_folder.h"
#include "common/config/run_settings.h"
#include "common/config/yaml_text.h"
#include "common/gpus/gpu.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"
#include "common/model/weights/adapter_check.h"
#include "services/cli/sweep/sweep_file.h"

namespace dapd {
namespace {

bool Sets(const Overrides& overrides, absl::string_view key) {
  return std::ranges::any_of(overrides, [&](const std::string& override) {
    return absl::StartsWith(override, absl::StrCat(key, "="));
  });
}

// Refuses settings of a run's name and place: runs would be named after seeds
// that they do not have, or lie in several folders.
absl::Status CheckPlaces(const std::string& path,
                         const SweepFile& file,
                         const Overrides& further) {
  std::vector<std::pair<std::string, const Overrides*>> givers = {
      {"--set", &further}, {"set", &file.common}};
  for (const SweepSetting& setting : file.settings) {
    givers.emplace_back(absl::StrCat("the setting ", setting.name),
                        &setting.overrides);
  }
  for (const auto& [giver, overrides] : givers) {
    if (Sets(*overrides, "run.name")) {
      return ConfigError(
          absl::StrCat(path,
                       ": ",
                       giver,
                       " gives run.name, but a sweep names its runs itself"));
    }
    if (!file.seeds.empty() && Sets(*overrides, "run.seed")) {
      return ConfigError(absl::StrCat(
          path,
          ": ",
          giver,
          " gives run.seed, and seeds too; give only one of the two"));
    }
  }
  for (const SweepSetting& setting : file.settings) {
    if (!Sets(setting.overrides, "run.output_dir")) continue;
    return ConfigError(
        absl::StrCat(path,
                     ": the setting ",
                     setting.name,
                     " gives run.output_dir, but all runs of a sweep lie in "
                     "one folder; give it in set"));
  }
  return absl::OkStatus();
}

// Refuses two names for one run, which would count as two results.
absl::Status CheckRunsDiffer(const std::string& path,
                             const std::vector<SweepRun>& runs) {
  std::set<std::string> names;
  std::map<std::string, std::string> name_of;  // by all other values
  for (const SweepRun& run : runs) {
    if (!names.insert(run.name).second) {
      return ConfigError(
          absl::StrCat(path, ": two runs are called ", run.name));
    }
    Config config = run.config;
    std::string values;
    for (const ConfigKey& key : ConfigKeys(config)) {
      if (key.name == "run.name") continue;
      absl::StrAppend(&values, FormatValue(key), "\n");
    }
    const auto [same, is_new] = name_of.emplace(std::move(values), run.name);
    if (is_new) continue;
    return ConfigError(absl::StrCat(path,
                                    ": ",
                                    same->second,
                                    " and ",
                                    run.name,
                                    " have the same values of all keys"));
  }
  return absl::OkStatus();
}

// Returns the bytes of all processes of a run.
double MemoryOf(const Config& config,
                const ModelConfig& model,
                const FurtherTeachers& teachers) {
  const MemoryPlan plan = PlanMemory(config, model, teachers);
  double further = 0;
  for (const FurtherTeacher& teacher : teachers) {
    further += plan.teachers.at(teacher.name()).Total() *
               static_cast<double>(teacher.settings.workers);
  }
  return further +
         plan.rollout.Total() *
             static_cast<double>(config.run.rollout_workers *
                                 config.rollout.tensor_parallel) +
         plan.teacher.Total() *
             static_cast<double>(config.run.teacher_workers) +
         plan.trainer.Total() * static_cast<double>(config.trainer.ranks);
}

// Checks that an existing folder holds this run, because another finished run
// would count as this run.
absl::Status CheckHeldRun(const SweepRun& run) {
  const std::string path = JoinPath(run.folder, "config.yaml");
  if (!FileExists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const LoadedConfig held, LoadWrittenConfig(path));
  const auto before = ResultSettings(held.config);
  std::vector<std::string> differences;
  for (const auto& [key, value] : ResultSettings(run.config)) {
    const auto old = before.find(key);
    const std::string was = old == before.end() ? "not set" : old->second;
    // The sweep's place may have changed; it does not affect results.
    if (was != value && key != "run.name" && key != "run.output_dir") {
      differences.push_back(absl::StrCat(key, " was ", was, ", is ", value));
    }
  }
  if (differences.empty()) return absl::OkStatus();
  return ConfigError(absl::StrCat(run.folder,
                                  " holds a run of other settings (",
                                  absl::StrJoin(differences, "; "),
                                  "); give the sweep another name, or remove "
                                  "that folder"));
}

// Adds the setting's run with `seed` (empty: the configuration's).
absl::Status AddRun(const SweepFile& file,
                    const SweepSetting& setting,
                    const std::string& seed,
                    const Overrides& overrides,
                    SweepPlan* plan) {
  SweepRun run;
  std::vector<std::string> parts;
  if (!setting.name.empty()) parts.push_back(setting.name);
  if (!seed.empty()) parts.push_back(absl::StrCat("seed-", seed));
  run.name = parts.empty() ? "run" : absl::StrJoin(parts, "-");
  run.overrides = file.common;
  run.overrides.insert(
      run.overrides.end(), setting.overrides.begin(), setting.overrides.end());
  if (!seed.empty()) run.overrides.push_back(absl::StrCat("run.seed=", seed));
  run.overrides.insert(run.overrides.end(), overrides.begin(), overrides.end());
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(file.config, run.overrides));
  plan->folder = JoinPath(loaded.config.run.output_dir, file.name);
  run.overrides.push_back(TextOverride("run.output_dir", plan->folder));
  run.overrides.push_back(TextOverride("run.name", run.name));
  // Runs of other sweeps may have the same names.
  if (const std::string& copies = loaded.config.checkpoint.copy_to;
      !copies.empty()) {
    run.overrides.push_back(
        TextOverride("checkpoint.copy_to", JoinPath(copies, file.name)));
  }
  ASSIGN_OR_RETURN(const LoadedConfig placed,
                   LoadConfig(file.config, run.overrides));
  run.config = placed.config;
  run.folder = JoinPath(plan->folder, run.name);
  RETURN_IF_ERROR(CheckHeldRun(run));
  run.done = HasFinished(run.folder, run.config.trainer.steps);
  ASSIGN_OR_RETURN(const std::string folder,
                   FindModelFolder(run.config.model.path));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(folder));
  if (!run.done) {
    RETURN_IF_ERROR(FindStartAdapter(run.config.lora, model).status());
  }
  ASSIGN_OR_RETURN(const FurtherTeachers teachers,
                   FindFurtherTeachers(run.config));
  run.memory_bytes = MemoryOf(run.config, model, teachers);
  if (plan->memory_bytes > 0 && run.memory_bytes > plan->memory_bytes) {
    return ConfigError(
        absl::StrFormat("it needs %.2f GiB by its plan, but memory_gib is %g",
                        run.memory_bytes / kGiB,
                        file.memory_gib));
  }
  plan->runs.push_back(std::move(run));
  return absl::OkStatus();
}

// Returns how many runs can run side by side.
int64_t SideBySide(const SweepFile& file, const SweepPlan& plan) {
  auto most = static_cast<int64_t>(plan.runs.size());
  if (file.parallel > 0) most = std::min(most, file.parallel);
  if (file.parallel == 0 && plan.memory_bytes == 0) return 1;
  if (plan.memory_bytes == 0) return most;
  double smallest = plan.memory_bytes;
  for (const SweepRun& run : plan.runs) {
    smallest = std::min(smallest, run.memory_bytes);
  }
  const double fitting = plan.memory_bytes / std::max(smallest, 1.0);
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::min(fitting, static_cast<double>(most))),
      1,
      most);
}

}  // namespace

absl::StatusOr<SweepPlan> ReadSweep(const std::string& path,
                                    const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const SweepFile file, ReadSweepFile(path));
  RETURN_IF_ERROR(CheckPlaces(path, file, overrides));
  SweepPlan plan{.config_path = file.config,
                 .memory_bytes = file.memory_gib * kGiB};
  const std::vector<std::string> seeds =
      file.seeds.empty() ? std::vector<std::string>{""} : file.seeds;
  if (file.settings.size() * seeds.size() > kMaxSweepRuns) {
    return ConfigError(
        absl::StrCat(path, ": more than ", kMaxSweepRuns, " runs"));
  }
  std::vector<std::string> problems;
  absl::Status first;
  for (const SweepSetting& setting : file.settings) {
    for (const std::string& seed : seeds) {
      const absl::Status added = AddRun(file, setting, seed, overrides, &plan);
      if (added.ok()) continue;
      if (first.ok()) first = added;
      problems.push_back(absl::StrCat(
          setting.name.empty() ? "run" : setting.name,
          seed.empty() ? "" : absl::StrCat(" with seed ", seed),
          ": ",
          absl::StrReplaceAll(std::string(added.message()), {{"\n", " "}})));
    }
  }
  if (!problems.empty()) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            path, " has invalid runs:\n  ", absl::StrJoin(problems, "\n  "))),
        ExitCodeOf(first));
  }
  RETURN_IF_ERROR(CheckRunsDiffer(path, plan.runs));
  plan.parallel = SideBySide(file, plan);
  if (plan.parallel == 1) return plan;
  // Runs side by side share the cores from the start: the number of threads
  // must not depend on which runs are left.
  for (SweepRun& run : plan.runs) {
    if (run.config.run.num_threads != 0) continue;
    run.config.run.num_threads = ThreadsOfEach(plan.parallel);
    run.overrides.push_back(
        absl::StrCat("run.num_threads=", run.config.run.num_threads));
  }
  return plan;
}

}  // namespace dapd
