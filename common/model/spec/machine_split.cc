#include "common/model/spec/machine_split.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/visible_gpus.h"
#include "common/config/run_folder.h"
#include "common/config/validate_config.h"
#include "common/model/spec/gpu_shares.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/role_split.h"
#include "common/model/spec/step_cost.h"

namespace dapd {
namespace {

// A key of the split: the place of its value, and of the given value.
struct SplitKey {
  const char* name;
  int64_t RoleSplit::*value;
  std::optional<int64_t> GivenSplit::*given;
};

constexpr SplitKey kSplitKeys[] = {
    {"trainer.ranks", &RoleSplit::ranks, &GivenSplit::ranks},
    {"run.rollout_workers", &RoleSplit::rollouts, &GivenSplit::rollouts},
    {"rollout.tensor_parallel",
     &RoleSplit::tensor_parallel,
     &GivenSplit::tensor_parallel},
    {"run.teacher_workers", &RoleSplit::teachers, &GivenSplit::teachers}};

bool AreAlike(const RoleSplit& a, const RoleSplit& b) {
  return std::ranges::all_of(kSplitKeys, [&](const SplitKey& key) {
    return a.*key.value == b.*key.value;
  });
}

// Returns --set values for the parts of `split` that differ from `configured`.
std::vector<std::string> Settings(const RoleSplit& split,
                                  const RoleSplit& configured) {
  std::vector<std::string> settings;
  for (const SplitKey& key : kSplitKeys) {
    if (split.*key.value == configured.*key.value) continue;
    settings.push_back(absl::StrCat(key.name, "=", split.*key.value));
  }
  return settings;
}

std::string Counted(int64_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// Returns "1 rollout worker of 2 GPUs".
std::string RolloutsInWords(const RoleSplit& split) {
  const std::string workers = Counted(split.rollouts, "rollout worker");
  return split.tensor_parallel == 1
             ? workers
             : absl::StrCat(workers, " of ", split.tensor_parallel, " GPUs");
}

std::string InWords(const RoleSplit& split) {
  return absl::StrCat(Counted(split.ranks, "trainer rank"),
                      ", ",
                      RolloutsInWords(split),
                      ", ",
                      Counted(split.teachers, "teacher"));
}

std::vector<std::string> GpusOf(const std::vector<LocalProcess>& processes,
                                RoleMemory MemoryPlan::*role) {
  std::vector<std::string> gpus;
  for (const LocalProcess& process : processes) {
    if (process.role != role || !process.teacher.empty()) continue;
    gpus.insert(gpus.end(), process.gpus.begin(), process.gpus.end());
  }
  return gpus;
}

// Returns which role computes on which GPUs.
std::string PlacesText(const RoleSplit& split,
                       const std::vector<LocalProcess>& processes,
                       size_t num_gpus) {
  std::vector<std::string> parts;
  for (const auto& [words, count, role] :
       {std::tuple{Counted(split.ranks, "trainer rank"),
                   split.ranks,
                   &MemoryPlan::trainer},
        std::tuple{
            RolloutsInWords(split), split.rollouts, &MemoryPlan::rollout},
        std::tuple{Counted(split.teachers, "teacher"),
                   split.teachers,
                   &MemoryPlan::teacher}}) {
    if (count == 0) continue;
    parts.push_back(absl::StrCat(
        words, " on ", absl::StrJoin(GpusOf(processes, role), ", ")));
  }
  for (const LocalProcess& process : processes) {
    if (process.teacher.empty()) continue;
    parts.push_back(
        absl::StrCat(process.name, " on ", absl::StrJoin(process.gpus, ", ")));
  }
  const bool is_shared =
      std::ranges::any_of(processes, [&](const LocalProcess& process) {
        return ProcessesOnGpusOf(process, processes) > 1;
      });
  return absl::StrCat(num_gpus,
                      is_shared ? " GPUs, which processes share: " : " GPUs: ",
                      absl::StrJoin(parts, "; "));
}

absl::StatusOr<RoleSplit> Recommend(const Config& config,
                                    const ModelConfig& model,
                                    const FurtherTeachers& teachers,
                                    const std::vector<Gpu>& gpus,
                                    const GivenSplit& given) {
  const Gpu& smallest = *std::ranges::min_element(gpus, {}, &Gpu::total_bytes);
  return RecommendSplit(config,
                        model,
                        LongestSamples(config),
                        {.count = static_cast<int64_t>(gpus.size()),
                         .bytes = smallest.total_bytes},
                        AssumedRates(config),
                        given,
                        teachers);
}

// Returns the split of the continued run if no other split is given and there
// is a GPU for each process.
std::optional<RoleSplit> KeptSplit(const std::optional<Config>& begun,
                                   int64_t further_workers,
                                   const GivenSplit& given,
                                   size_t num_gpus) {
  if (!begun.has_value()) return std::nullopt;
  const RoleSplit split = SplitOf(*begun);
  for (const SplitKey& key : kSplitKeys) {
    const int64_t kept = split.*key.value;
    // A role that the objective does not use has no processes, even if their
    // number is given.
    if (kept > 0 && (given.*key.given).value_or(kept) != kept) {
      return std::nullopt;
    }
  }
  if (split.NumDevices() + further_workers > static_cast<int64_t>(num_gpus)) {
    return std::nullopt;
  }
  return split;
}

constexpr char kUpToRounding[] =
    "the result is then the same up to rounding, but not bit for bit";

// Returns why `split` does not use all GPUs, and advice.
std::string ReasonOfUnused(const LoadedConfig& loaded,
                           const ModelConfig& model,
                           const FurtherTeachers& teachers,
                           const std::vector<Gpu>& gpus,
                           const RoleSplit& split,
                           bool is_kept) {
  const Config& config = loaded.config;
  const RoleSplit configured = SplitOf(config);
  const GivenSplit given = GivenBy(loaded);
  if (is_kept) {
    const auto anew = Recommend(config, model, teachers, gpus, given);
    if (anew.ok() && anew->NumDevices() > split.NumDevices()) {
      return absl::StrCat("the run goes on with the split that it began with, ",
                          InWords(split),
                          "; --set ",
                          absl::StrJoin(Settings(*anew, split), " --set "),
                          " uses ",
                          anew->NumDevices(),
                          ": ",
                          kUpToRounding);
    }
  }
  const auto free = Recommend(config, model, teachers, gpus, {});
  if (free.ok() && free->NumDevices() > split.NumDevices()) {
    std::vector<std::string> set;
    for (const SplitKey& key : kSplitKeys) {
      if ((given.*key.given).value_or(*free.*key.value) != *free.*key.value) {
        set.push_back(absl::StrCat(key.name,
                                   "=",
                                   configured.*key.value,
                                   " (",
                                   loaded.origins.at(key.name),
                                   ")"));
      }
    }
    return absl::StrCat("the configuration has ",
                        absl::StrJoin(set, " and "),
                        "; without ",
                        set.size() == 1 ? "that" : "these",
                        " `dapd run` would use ",
                        free->NumDevices(),
                        ": ",
                        InWords(*free));
  }
  if (!free.ok()) return std::string(free.status().message());
  return absl::StrCat("a step of trainer.batch_size ",
                      config.trainer.batch_size,
                      " has work for ",
                      InWords(split),
                      " and no more; a larger batch has more");
}

void WarnOfUnused(const LoadedConfig& loaded,
                  const ModelConfig& model,
                  const FurtherTeachers& teachers,
                  const RoleSplit& split,
                  const std::vector<LocalProcess>& processes,
                  bool is_kept,
                  MachineSplit* machine) {
  std::vector<std::string> unused;
  for (const std::string& name : machine->names) {
    if (std::ranges::none_of(processes, [&](const LocalProcess& process) {
          return std::ranges::count(process.gpus, name) > 0;
        })) {
      unused.push_back(name);
    }
  }
  if (unused.empty()) return;
  machine->warnings.push_back(absl::StrCat(
      unused.size(),
      " of ",
      machine->names.size(),
      " GPUs are not used (",
      Printable(absl::StrJoin(unused, ", ")),
      "): ",
      ReasonOfUnused(loaded, model, teachers, machine->gpus, split, is_kept),
      "; run.gpus=",
      machine->names.size() - unused.size(),
      " leaves them to others"));
}

}  // namespace

std::optional<Config> BegunConfig(const RunConfig& run) {
  const std::string path = JoinPath(FolderOf(run), "config.yaml");
  if (!FileExists(path)) return std::nullopt;
  auto begun = LoadWrittenConfig(path);
  if (!begun.ok()) return std::nullopt;
  return std::move(begun->config);
}

absl::StatusOr<MachineSplit> SplitMachine(const LoadedConfig& loaded,
                                          const std::optional<Config>& begun,
                                          const ModelConfig& model,
                                          const GpuReport& report,
                                          const FurtherTeachers& teachers) {
  MachineSplit machine{
      .config = loaded.config, .names = GpuNames(report), .gpus = report.gpus};
  const auto asked = static_cast<size_t>(NumGpusAsked(loaded.config.run));
  if (asked > machine.names.size()) {
    return ConfigError(
        absl::StrCat("run.gpus is ",
                     asked,
                     " (",
                     loaded.origins.at("run.gpus"),
                     "), but there are ",
                     machine.names.size(),
                     " GPUs (",
                     Printable(absl::StrJoin(machine.names, ", ")),
                     "): lower it, or leave it at auto"));
  }
  if (asked > 0) {
    machine.names.resize(asked);
    machine.gpus.resize(asked);
  }
  const GivenSplit given = GivenBy(loaded);
  const RoleSplit configured = SplitOf(loaded.config);
  RoleSplit split = configured;
  const std::optional<RoleSplit> kept = KeptSplit(
      begun, NumFurtherWorkers(loaded.config), given, machine.names.size());
  if (kept.has_value()) {
    split = *kept;
  } else if (machine.names.size() > 1) {
    const auto recommended =
        Recommend(loaded.config, model, teachers, machine.gpus, given);
    if (recommended.ok()) split = *recommended;
  }
  machine.overrides = Settings(split, configured);
  machine.config = WithSplit(loaded.config, split);
  const std::vector<LocalProcess> processes =
      DealGpus(machine.config, machine.names);
  if (machine.names.size() > 1) {
    machine.text = PlacesText(split, processes, machine.names.size());
  }
  if (begun.has_value() && !AreAlike(SplitOf(*begun), split)) {
    machine.warnings.push_back(absl::StrCat("the run began with ",
                                            InWords(SplitOf(*begun)),
                                            " and goes on with ",
                                            InWords(split),
                                            ": ",
                                            kUpToRounding));
  }
  WarnOfUnused(
      loaded, model, teachers, split, processes, kept.has_value(), &machine);
  return machine;
}

}  // namespace dapd
