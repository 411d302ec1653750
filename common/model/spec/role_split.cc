#include "common/model/spec/role_split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/config/preset_terms.h"
#include "common/config/validate_config.h"
#include "common/model/spec/model_config.h"

namespace dapd {
namespace {

// What a step takes with one number of a role's processes: no role's time
// depends on another's number.
class RoleSeconds {
 public:
  RoleSeconds(const Config& config,
              const ModelConfig& model,
              const SampleLengths& lengths,
              const HardwareRates& rates)
      : config_(config), model_(model), lengths_(lengths), rates_(rates) {
    const int64_t unit = SamplesOfUnit(config);
    units_ = (config.trainer.batch_size + unit - 1) / unit;
  }

  int64_t MostRanks() const { return units_; }

  // With the network, on which gradients and layers travel between ranks.
  double OfRanks(int64_t ranks) const {
    const StepSeconds seconds = Predict({.ranks = ranks});
    const auto units = static_cast<double>(units_);
    const auto most = static_cast<double>((units_ + ranks - 1) / ranks);
    return seconds.trainer * most * static_cast<double>(ranks) / units +
           seconds.network;
  }
  double OfTeachers(int64_t teachers) const {
    return teachers == 0 ? 0 : Predict({.teachers = teachers}).teacher;
  }
  double OfRollouts(int64_t rollouts) const {
    return rollouts == 0 ? 0 : Predict({.rollouts = rollouts}).rollout;
  }

 private:
  StepSeconds Predict(const RoleSplit& split) const {
    const Config config = WithSplit(config_, split);
    return PredictStep(
        config,
        CountStepWork(config, model_, lengths_, /*snapshot_is_base=*/false),
        rates_);
  }

  const Config& config_;
  const ModelConfig& model_;
  const SampleLengths& lengths_;
  const HardwareRates& rates_;
  int64_t units_ = 1;
};

}  // namespace

Config WithSplit(Config config, const RoleSplit& split) {
  config.trainer.ranks = split.ranks;
  config.run.teacher_workers = std::max<int64_t>(split.teachers, 1);
  config.run.rollout_workers = std::max<int64_t>(split.rollouts, 1);
  return config;
}

absl::StatusOr<RoleSplit> RecommendSplit(const Config& config,
                                         const ModelConfig& model,
                                         const SampleLengths& lengths,
                                         int64_t devices,
                                         const HardwareRates& rates) {
  const int64_t of_worker = config.rollout.tensor_parallel;
  const int64_t fewest_ranks = config.trainer.shard_base ? 2 : 1;
  const int64_t fewest_teachers = AsksTeachers(config) ? 1 : 0;
  const int64_t fewest_rollouts = AsksRolloutWorkers(config) ? 1 : 0;
  const int64_t fewest =
      fewest_ranks + fewest_teachers + fewest_rollouts * of_worker;
  const RoleSeconds seconds(config, model, lengths, rates);
  std::map<int64_t, double> of_rollouts;  // by their number
  const int64_t most_rollouts =
      fewest_rollouts == 0
          ? 0
          : (devices - fewest_ranks - fewest_teachers) / of_worker;
  for (int64_t count = fewest_rollouts; count <= most_rollouts; ++count) {
    of_rollouts[count] = seconds.OfRollouts(count);
  }
  std::map<int64_t, double> of_teachers;
  for (int64_t count = fewest_teachers;
       count <= (fewest_teachers == 0 ? 0 : devices);
       ++count) {
    of_teachers[count] = seconds.OfTeachers(count);
  }
  std::optional<RoleSplit> best;
  const int64_t most_ranks = std::min(devices, seconds.MostRanks());
  for (int64_t ranks = fewest_ranks; ranks <= most_ranks; ++ranks) {
    if (config.trainer.shard_base && !CheckSplit(model, ranks).ok()) continue;
    const double of_ranks = seconds.OfRanks(ranks);
    for (const auto& [rollouts, sampling] : of_rollouts) {
      const int64_t left = devices - ranks - rollouts * of_worker;
      if (left < fewest_teachers) break;
      // Teachers take what is left: none of them is in another's way.
      const int64_t teachers = fewest_teachers == 0 ? 0 : left;
      const RoleSplit split{
          .ranks = ranks,
          .teachers = teachers,
          .rollouts = rollouts,
          .seconds = of_ranks + sampling + of_teachers.at(teachers)};
      if (!best.has_value() || split.seconds < best->seconds) best = split;
    }
  }
  if (best.has_value()) return *best;
  return absl::FailedPreconditionError(absl::StrCat(
      devices,
      " devices are too few: this configuration needs ",
      fewest,
      " or more for ",
      fewest_ranks,
      " trainer ranks, ",
      fewest_teachers,
      " teachers and ",
      fewest_rollouts,
      " rollout workers with ",
      of_worker,
      " devices each; on fewer `dapd run` lets processes share them"));
}

}  // namespace dapd
