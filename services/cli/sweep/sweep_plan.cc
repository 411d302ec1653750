#include "services/cli/sweep/sweep_plan.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/safe_name.h"
#include "common/base/status_macros.h"
#include "common/base/thread_share.h"
#include "common/config/load_config.h"
#include "common/config/run_folder.h"
#include "common/config/run_settings.h"
#include "common/config/yaml_text.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"

namespace dapd {
namespace {

using Overrides = std::vector<std::string>;

constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxRuns = 10000;
constexpr size_t kMaxNameBytes = 100;
constexpr double kGiB = 1 << 30;

// One setting of the sweep, of which each seed makes a run.
struct Setting {
  std::string name;
  Overrides overrides;
};

// What the file says, before it is expanded.
struct SweepFile {
  std::string name;
  std::string config;
  Overrides common;
  std::vector<Setting> settings;
  std::vector<std::string> seeds;
  int64_t parallel = 0;  // not given
  double memory_gib = 0.0;
};

// Ends the reading with its message, which ReadSweepFile takes.
[[noreturn]] void Refuse(const YAML::Node& node, const std::string& problem) {
  throw YAML::ParserException(node.Mark(), problem);
}

// A value as --set takes it: YAML again, where a text in quotes or in a block
// keeps its blanks, its lines and what would be a comment.
std::string ValueText(const YAML::Node& node) {
  if (node.IsScalar()) {
    return node.Tag() == "!" ? Quote(node.Scalar()) : node.Scalar();
  }
  if (node.IsNull()) Refuse(node, "a value is missing");
  YAML::Emitter text;
  text.SetMapFormat(YAML::Flow);
  text.SetSeqFormat(YAML::Flow);
  text << node;
  return text.c_str();
}

// {"trainer.steps": 60} -> "trainer.steps=60".
Overrides ReadSet(const YAML::Node& node) {
  Overrides overrides;
  if (!node || node.IsNull()) return overrides;
  if (!node.IsMap()) Refuse(node, "a map of keys and values is expected");
  for (const auto& entry : node) {
    overrides.push_back(
        absl::StrCat(entry.first.Scalar(), "=", ValueText(entry.second)));
  }
  return overrides;
}

// "trainer.learning_rate", 1.0e-4 -> "learning_rate-1.0e-4".
std::string ShortName(const std::string& key, const YAML::Node& value) {
  const size_t dot = key.rfind('.');
  std::string name =
      absl::StrCat(key.substr(dot == std::string::npos ? 0 : dot + 1),
                   "-",
                   value.IsScalar() ? value.Scalar() : ValueText(value));
  for (char& c : name) {
    if (!IsSafeName(std::string("a") + c)) c = '_';
  }
  return name;
}

std::vector<Setting> ReadGrid(const YAML::Node& grid) {
  if (!grid.IsMap() || grid.size() == 0) {
    Refuse(grid, "grid: a map of keys and lists of values is expected");
  }
  std::vector<Setting> settings(1);
  for (const auto& entry : grid) {
    const YAML::Node& values = entry.second;
    if (!values.IsSequence() || values.size() == 0) {
      Refuse(
          entry.first,
          absl::StrCat(
              "grid.", entry.first.Scalar(), ": a list of values is expected"));
    }
    std::vector<Setting> product;
    for (const Setting& setting : settings) {
      for (const YAML::Node& value : values) {
        Setting& next = product.emplace_back(setting);
        const std::string key = entry.first.Scalar();
        next.overrides.push_back(absl::StrCat(key, "=", ValueText(value)));
        absl::StrAppend(
            &next.name, next.name.empty() ? "" : "-", ShortName(key, value));
      }
    }
    if (product.size() > kMaxRuns) {
      Refuse(grid, absl::StrCat("grid: more than ", kMaxRuns, " runs"));
    }
    settings = std::move(product);
  }
  for (size_t i = 0; i < settings.size(); ++i) {
    std::string& name = settings[i].name;
    if (name.size() > kMaxNameBytes || !IsSafeName(name)) {
      name = absl::StrFormat("setting-%03d", i + 1);
    }
  }
  return settings;
}

std::vector<Setting> ReadList(const YAML::Node& list) {
  if (!list.IsSequence() || list.size() == 0) {
    Refuse(list, "list: a list of {name, set} is expected");
  }
  std::vector<Setting> settings;
  for (const YAML::Node& item : list) {
    if (!item.IsMap() || !item["name"] || !item["name"].IsScalar()) {
      Refuse(item, "list: each setting needs a name");
    }
    for (const auto& entry : item) {
      const std::string key = entry.first.Scalar();
      if (key != "name" && key != "set") {
        Refuse(entry.first, absl::StrCat("list: unknown key ", key));
      }
    }
    const std::string name = item["name"].Scalar();
    if (!IsSafeName(name) || name.size() > kMaxNameBytes) {
      Refuse(item["name"],
             absl::StrCat("list: the name '",
                          name,
                          "' must be of letters, digits, '.', '_' and '-'"));
    }
    settings.push_back({name, ReadSet(item["set"])});
  }
  return settings;
}

SweepFile ReadNodes(const YAML::Node& root) {
  static const auto& known = *new std::set<std::string>{"name",
                                                        "config",
                                                        "set",
                                                        "grid",
                                                        "list",
                                                        "seeds",
                                                        "parallel",
                                                        "memory_gib"};
  if (!root.IsMap()) Refuse(root, "a map of keys is expected");
  for (const auto& entry : root) {
    if (known.contains(entry.first.Scalar())) continue;
    Refuse(entry.first,
           absl::StrCat("unknown key ",
                        entry.first.Scalar(),
                        "; the keys are ",
                        absl::StrJoin(known, ", ")));
  }
  SweepFile file;
  for (const auto& [key, target] :
       {std::pair("name", &file.name), {"config", &file.config}}) {
    if (!root[key] || !root[key].IsScalar()) {
      Refuse(root, absl::StrCat(key, " is missing"));
    }
    *target = root[key].Scalar();
  }
  if (!IsSafeName(file.name)) {
    Refuse(root["name"],
           "name: letters, digits, '.', '_' and '-' are expected");
  }
  file.common = ReadSet(root["set"]);
  if (root["grid"] && root["list"]) {
    Refuse(root["list"], "there is also a grid; give only one of the two");
  }
  if (root["grid"]) {
    file.settings = ReadGrid(root["grid"]);
  } else if (root["list"]) {
    file.settings = ReadList(root["list"]);
  } else {
    file.settings = {{"", {}}};
  }
  if (root["seeds"]) {
    if (!root["seeds"].IsSequence() || root["seeds"].size() == 0) {
      Refuse(root["seeds"], "seeds: a list of numbers is expected");
    }
    for (const YAML::Node& seed : root["seeds"]) {
      file.seeds.push_back(absl::StrCat(seed.as<uint64_t>()));
    }
  }
  if (root["parallel"]) file.parallel = root["parallel"].as<int64_t>();
  if (root["memory_gib"]) file.memory_gib = root["memory_gib"].as<double>();
  if (root["parallel"] && file.parallel < 1) {
    Refuse(root["parallel"], "parallel: at least 1 is expected");
  }
  if (root["memory_gib"] && !(file.memory_gib > 0)) {
    Refuse(root["memory_gib"], "memory_gib: a positive number is expected");
  }
  return file;
}

absl::StatusOr<SweepFile> ReadSweepFile(const std::string& path) try {
  auto text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kConfig);
  return ReadNodes(YAML::Load(*text));
} catch (const YAML::BadConversion& error) {
  return ConfigError(absl::StrCat(
      path,
      ":",
      error.mark.line + 1,
      ": a number is expected: a non-negative integer for each of seeds, an "
      "integer for parallel, a positive number for memory_gib"));
} catch (const YAML::Exception& error) {
  return ConfigError(
      absl::StrCat(path, ":", error.mark.line + 1, ": ", error.msg));
}

// Bytes of all processes of a run.
double MemoryOf(const Config& config, const ModelConfig& model) {
  const MemoryPlan plan = PlanMemory(config, model);
  return plan.rollout.Total() *
             static_cast<double>(config.run.rollout_workers *
                                 config.rollout.tensor_parallel) +
         plan.teacher.Total() *
             static_cast<double>(config.run.teacher_workers) +
         plan.trainer.Total() * static_cast<double>(config.trainer.ranks);
}

// A folder that holds a run has to hold this one: another that is finished
// would be taken for it.
absl::Status CheckHeldRun(const SweepRun& run) {
  const std::string path = JoinPath(run.folder, "config.yaml");
  if (!FileExists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const LoadedConfig held, LoadConfig(path, {}));
  const auto before = ResultSettings(held.config);
  std::vector<std::string> differences;
  for (const auto& [key, value] : ResultSettings(run.config)) {
    const auto old = before.find(key);
    const std::string was = old == before.end() ? "not set" : old->second;
    // Where the sweep lies may have changed, and no part of a run's result.
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
                    const Setting& setting,
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
  run.overrides.push_back(absl::StrCat("run.output_dir=", plan->folder));
  run.overrides.push_back(absl::StrCat("run.name=", run.name));
  ASSIGN_OR_RETURN(const LoadedConfig placed,
                   LoadConfig(file.config, run.overrides));
  run.config = placed.config;
  run.folder = JoinPath(plan->folder, run.name);
  RETURN_IF_ERROR(CheckHeldRun(run));
  run.done = FinishedStep(run.folder) >= run.config.trainer.steps;
  ASSIGN_OR_RETURN(const std::string folder,
                   FindModelFolder(run.config.model.path));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(folder));
  run.memory_bytes = MemoryOf(run.config, model);
  if (plan->memory_bytes > 0 && run.memory_bytes > plan->memory_bytes) {
    return ConfigError(
        absl::StrFormat("it needs %.2f GiB by its plan, but memory_gib is %g",
                        run.memory_bytes / kGiB,
                        file.memory_gib));
  }
  plan->runs.push_back(std::move(run));
  return absl::OkStatus();
}

// How many runs can be under way at a time.
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
  SweepPlan plan{.config_path = file.config,
                 .memory_bytes = file.memory_gib * kGiB};
  const std::vector<std::string> seeds =
      file.seeds.empty() ? std::vector<std::string>{""} : file.seeds;
  if (file.settings.size() * seeds.size() > kMaxRuns) {
    return ConfigError(absl::StrCat(path, ": more than ", kMaxRuns, " runs"));
  }
  std::vector<std::string> problems;
  absl::Status first;
  for (const Setting& setting : file.settings) {
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
  std::set<std::string> names;
  for (const SweepRun& run : plan.runs) {
    if (names.insert(run.name).second) continue;
    return ConfigError(absl::StrCat(path, ": two runs are called ", run.name));
  }
  plan.parallel = SideBySide(file, plan);
  if (plan.parallel == 1) return plan;
  // Those that run together share the cores, from the first on: how many
  // threads compute must not depend on which others are left.
  for (SweepRun& run : plan.runs) {
    if (run.config.run.num_threads != 0) continue;
    run.config.run.num_threads = ThreadsOfEach(plan.parallel);
    run.overrides.push_back(
        absl::StrCat("run.num_threads=", run.config.run.num_threads));
  }
  return plan;
}

}  // namespace dapd
