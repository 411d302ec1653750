#include "services/cli/compare/paired_seeds.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/data/confidence_interval.h"

namespace dapd {
namespace {

// A group's runs by their seeds.
using RunOfSeed = std::map<std::string, size_t>;

absl::Status NoPairs(const std::string& why) {
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat(
          "--paired: ", why, "; runs are paired by their run.seed")),
      ExitCode::kUsage);
}

absl::Status CheckHasSeedsOf(const RunOfSeed& other,
                             const std::string& other_name,
                             const RunOfSeed& seeds,
                             const std::string& name) {
  for (const auto& [seed, run] : other) {
    if (seeds.contains(seed)) continue;
    return NoPairs(absl::StrCat(
        "'", name, "' has no run of seed ", seed, ", '", other_name, "' has"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RunOfSeed>> FindSeeds(const Comparison& comparison) {
  std::vector<RunOfSeed> seeds;
  for (const RunGroup& group : comparison.groups) {
    RunOfSeed& own = seeds.emplace_back();
    for (const size_t run : group.runs) {
      const std::string seed = SettingOf(comparison.runs[run], kSeedKey);
      if (!own.emplace(seed, run).second) {
        return NoPairs(
            absl::StrCat("'", group.name, "' has two runs of seed ", seed));
      }
    }
    const std::string& first = comparison.groups.front().name;
    RETURN_IF_ERROR(CheckHasSeedsOf(seeds.front(), first, own, group.name));
    RETURN_IF_ERROR(CheckHasSeedsOf(own, group.name, seeds.front(), first));
  }
  if (seeds.front().size() < 2) {
    return NoPairs("there is only one seed, but an interval needs two pairs");
  }
  return seeds;
}

// `independent`: this difference computed without pairs.
std::optional<Interval> OverPairs(const std::vector<double>& differences,
                                  bool is_share,
                                  const std::optional<Interval>& independent) {
  if (differences.size() < 2 || !independent.has_value()) return std::nullopt;
  if (Agree(differences)) {
    const double each = differences.front();
    return Interval{each,
                    each - (independent->mean - independent->low),
                    each + (independent->high - independent->mean)};
  }
  Interval interval = MeanInterval(differences);
  if (is_share) {
    interval.low = std::max(interval.low, -1.0);
    interval.high = std::min(interval.high, 1.0);
  }
  return interval;
}

void PairRows(const std::vector<RunOfSeed>& seeds, ComparedFigure* figure) {
  for (size_t group = 0; group < figure->groups.size(); ++group) {
    std::vector<double> changes;
    std::vector<double> against_first;
    for (const auto& [seed, run] : seeds[group]) {
      const ComparedFigure::Row& own = figure->runs[run];
      const ComparedFigure::Row& partner = figure->runs[seeds.front().at(seed)];
      if (!own.after.has_value()) continue;
      if (own.before.has_value()) {
        changes.push_back(own.after->mean - own.before->mean);
      }
      if (partner.after.has_value()) {
        against_first.push_back(own.after->mean - partner.after->mean);
      }
    }
    ComparedFigure::Row& row = figure->groups[group];
    row.change = OverPairs(changes, figure->is_share, row.change);
    // The first group has no partner.
    row.against_first =
        OverPairs(against_first, figure->is_share, row.against_first);
  }
}

}  // namespace

absl::Status PairBySeed(Comparison* comparison) {
  ASSIGN_OR_RETURN(const std::vector<RunOfSeed> seeds, FindSeeds(*comparison));
  for (ComparedFigure& figure : comparison->figures) PairRows(seeds, &figure);
  comparison->is_paired = true;
  return absl::OkStatus();
}

}  // namespace dapd
