#include "common/model/spec/role_split.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/config/preset_terms.h"
#include "common/config/validate_config.h"
#include "common/gpus/gpu.h"
#include "common/model/spec/pass_memory.h"

namespace dapd {
namespace {

// The rollout workers of a split.
struct Sampling {
  int64_t rollouts = 0;
  int64_t tensor_parallel = 1;

  int64_t NumDevices() const { return rollouts * tensor_parallel; }
};

// The possible numbers of each role's processes, and the seconds of a step with
// each number: no role's time depends on another role's number.
class RoleChoices {
 public:
  RoleChoices(const Config& config,
              const ModelConfig& model,
              const SampleLengths& lengths,
              const SplitDevices& devices,
              const HardwareRates& rates,
              const GivenSplit& given,
              const FurtherTeachers& teachers)
      : config_(config),
        model_(model),
        lengths_(lengths),
        devices_(devices),
        rates_(rates),
        given_(given),
        teachers_(teachers) {
    const int64_t unit = SamplesOfUnit(config);
    units_ = (config.trainer.batch_size + unit - 1) / unit;
  }

  int64_t FewestRanks() const {
    return given_.ranks.value_or(config_.trainer.shard_base ? 2 : 1);
  }
  int64_t FewestTeachers() const {
    return AsksTeachers(config_) ? given_.teachers.value_or(1) : 0;
  }
  int64_t FewestRollouts() const {
    return AsksRolloutWorkers(config_) ? given_.rollouts.value_or(1) : 0;
  }

  std::vector<int64_t> Ranks() const {
    const int64_t most = given_.ranks.value_or(
        std::max(FewestRanks(), std::min(devices_.count, units_)));
    std::vector<int64_t> ranks;
    for (int64_t count = FewestRanks(); count <= most; ++count) {
      const bool can_split =
          !config_.trainer.shard_base || CheckSplit(model_, count).ok();
      if (can_split && Fits(&MemoryPlan::trainer, {.ranks = count})) {
        ranks.push_back(count);
      }
    }
    return ranks;
  }

  // Returns the possible numbers of GPUs of a rollout worker. On CPUs several
  // ranks decode by LibTorch's operations, for models that do not fit one
  // machine.
  std::vector<int64_t> OfAWorker() const {
    if (given_.tensor_parallel.has_value()) {
      return {*given_.tensor_parallel};
    }
    const bool may_split = PlansForGpu(config_) && AsksRolloutWorkers(config_);
    const int64_t most =
        may_split ? std::min(devices_.count, kMostOfAWorker) : 1;
    std::vector<int64_t> counts;
    for (int64_t count = 1; count <= most; ++count) {
      if (CheckSplit(model_, count).ok() &&
          Fits(&MemoryPlan::rollout, {.tensor_parallel = count})) {
        counts.push_back(count);
      }
    }
    return counts;
  }

  std::vector<Sampling> Samplings() const {
    const int64_t fewest = FewestRollouts();
    const int64_t left = devices_.count - FewestRanks() - FewestTeachers();
    std::vector<Sampling> samplings;
    for (const int64_t of_worker : OfAWorker()) {
      const int64_t most = fewest == 0 || given_.rollouts.has_value()
                               ? fewest
                               : left / of_worker;
      for (int64_t count = fewest; count <= most; ++count) {
        samplings.push_back({count, of_worker});
      }
    }
    return samplings;
  }

  // Returns all remaining devices: teachers do not disturb each other.
  int64_t Teachers(int64_t left) const {
    return FewestTeachers() == 0 ? 0 : given_.teachers.value_or(left);
  }
  bool TeachersFit() const {
    const bool further_fit =
        devices_.bytes == 0 ||
        std::ranges::all_of(teachers_, [this](const FurtherTeacher& teacher) {
          return FitsDevice(PlanTeacherMemory(config_, teacher),
                            devices_.bytes);
        });
    return further_fit &&
           (FewestTeachers() == 0 || Fits(&MemoryPlan::teacher, {}));
  }

  // Includes the network, on which gradients and layers travel between ranks.
  double SecondsOfRanks(int64_t ranks) const {
    const StepSeconds seconds = Predict({.ranks = ranks});
    const auto units = static_cast<double>(units_);
    const auto most = static_cast<double>((units_ + ranks - 1) / ranks);
    return seconds.trainer * most * static_cast<double>(ranks) / units +
           seconds.network;
  }
  double SecondsOfTeachers(int64_t teachers) const {
    return teachers == 0 ? 0 : Predict({.teachers = teachers}).teacher;
  }
  double SecondsOf(const Sampling& sampling) const {
    if (sampling.rollouts == 0) return 0;
    return Predict({.rollouts = sampling.rollouts,
                    .tensor_parallel = sampling.tensor_parallel})
        .rollout;
  }

  // Returns why no split was found.
  absl::Status Refusal() const {
    const std::vector<int64_t> of_worker = OfAWorker();
    const std::vector<int64_t> ranks = Ranks();
    const bool all_fit = !ranks.empty() && !of_worker.empty() && TeachersFit();
    if (devices_.bytes > 0 && !all_fit) {
      return absl::FailedPreconditionError(absl::StrCat(
          "no split of ",
          devices_.count,
          " devices of ",
          absl::StrFormat("%.1f", static_cast<double>(devices_.bytes) / kGiB),
          " GiB has room for ",
          ranks.empty()       ? "a trainer rank"
          : of_worker.empty() ? "a rollout worker"
                              : "a teacher",
          "; `dapd check` prints what takes it"));
    }
    const int64_t further = NumFurtherWorkers(config_);
    const int64_t least_ranks = ranks.empty() ? FewestRanks() : ranks.front();
    const int64_t least_of_worker = of_worker.empty() ? 1 : of_worker.front();
    return absl::FailedPreconditionError(absl::StrCat(
        devices_.count + further,
        " devices are too few: this configuration needs ",
        least_ranks + FewestTeachers() + FewestRollouts() * least_of_worker +
            further,
        " or more for ",
        least_ranks,
        " trainer ranks, ",
        FewestTeachers(),
        " teachers and ",
        FewestRollouts(),
        " rollout workers with ",
        least_of_worker,
        " devices each",
        further > 0
            ? absl::StrCat(", beside ", further, " workers of further teachers")
            : "",
        "; on fewer `dapd run` lets processes share them"));
  }

 private:
  StepSeconds Predict(const RoleSplit& split) const {
    const Config config = WithSplit(config_, split);
    return PredictStep(config,
                       CountStepWork(config,
                                     model_,
                                     lengths_,
                                     /*snapshot_is_base=*/false,
                                     teachers_),
                       rates_);
  }
  bool Fits(RoleMemory MemoryPlan::*role, const RoleSplit& split) const {
    if (devices_.bytes == 0) return true;
    const MemoryPlan plan =
        PlanMemory(WithSplit(config_, split), model_, teachers_);
    return FitsDevice(plan.*role, devices_.bytes);
  }

  const Config& config_;
  const ModelConfig& model_;
  const SampleLengths& lengths_;
  const SplitDevices& devices_;
  const HardwareRates& rates_;
  const GivenSplit& given_;
  const FurtherTeachers& teachers_;
  int64_t units_ = 1;
};

}  // namespace

GivenSplit GivenBy(const LoadedConfig& loaded) {
  const Config& config = loaded.config;
  const auto given = [&](const char* key, int64_t value) {
    return loaded.origins.at(key) == "default" ? std::nullopt
                                               : std::optional(value);
  };
  return {.ranks = given("trainer.ranks", config.trainer.ranks),
          .teachers = given("run.teacher_workers", config.run.teacher_workers),
          .rollouts = given("run.rollout_workers", config.run.rollout_workers),
          .tensor_parallel =
              given("rollout.tensor_parallel", config.rollout.tensor_parallel)};
}

bool FitsDevice(const RoleMemory& plan, int64_t bytes) {
  return plan.Least() <= static_cast<double>(bytes) * (1 - plan.holes);
}

RoleSplit SplitOf(const Config& config) {
  return {
      .ranks = config.trainer.ranks,
      .teachers = AsksTeachers(config) ? config.run.teacher_workers : 0,
      .rollouts = AsksRolloutWorkers(config) ? config.run.rollout_workers : 0,
      .tensor_parallel = config.rollout.tensor_parallel};
}

Config WithSplit(Config config, const RoleSplit& split) {
  config.trainer.ranks = split.ranks;
  config.run.teacher_workers = std::max<int64_t>(split.teachers, 1);
  config.run.rollout_workers = std::max<int64_t>(split.rollouts, 1);
  config.rollout.tensor_parallel = split.tensor_parallel;
  return config;
}

absl::StatusOr<RoleSplit> RecommendSplit(const Config& config,
                                         const ModelConfig& model,
                                         const SampleLengths& lengths,
                                         const SplitDevices& all_devices,
                                         const HardwareRates& rates,
                                         const GivenSplit& given,
                                         const FurtherTeachers& teachers) {
  const SplitDevices devices{
      .count = all_devices.count - NumFurtherWorkers(config),
      .bytes = all_devices.bytes};
  const RoleChoices choices(
      config, model, lengths, devices, rates, given, teachers);
  std::vector<std::pair<Sampling, double>> samplings;
  for (const Sampling& sampling : choices.Samplings()) {
    samplings.emplace_back(sampling, choices.SecondsOf(sampling));
  }
  std::map<int64_t, double> of_teachers;  // by number of teachers
  const auto teaching = [&](int64_t count) {
    const auto [entry, is_new] = of_teachers.try_emplace(count, 0);
    if (is_new) entry->second = choices.SecondsOfTeachers(count);
    return entry->second;
  };
  const std::vector<int64_t> all_ranks =
      choices.TeachersFit() ? choices.Ranks() : std::vector<int64_t>();
  std::optional<RoleSplit> best;
  for (const int64_t ranks : all_ranks) {
    const double of_ranks = choices.SecondsOfRanks(ranks);
    for (const auto& [sampling, of_sampling] : samplings) {
      const int64_t left = devices.count - ranks - sampling.NumDevices();
      if (left < choices.FewestTeachers()) continue;
      const int64_t num_teachers = choices.Teachers(left);
      const RoleSplit split{
          .ranks = ranks,
          .teachers = num_teachers,
          .rollouts = sampling.rollouts,
          .tensor_parallel = sampling.tensor_parallel,
          .seconds = of_ranks + of_sampling + teaching(num_teachers)};
      if (!best.has_value() || split.seconds < best->seconds) best = split;
    }
  }
  if (best.has_value()) return *best;
  return choices.Refusal();
}

}  // namespace dapd
