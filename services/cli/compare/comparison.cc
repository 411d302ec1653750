#include "services/cli/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/utf8.h"

namespace dapd {
namespace {

constexpr char kDivergences[] = "unclipped_divergence/";
constexpr char kClaims[] = "claim_probability/";
constexpr char kMarkerRate[] = "marker_rate";
constexpr size_t kMinCurve = 3;        // evaluations; two are before and after
constexpr size_t kMaxValueBytes = 32;  // in a group's name

// Returns whether a key says where a run lies, listens or computes: `dapd run`
// gives each run its own place.
bool IsPlace(const std::string& key) {
  return key == "run.name" || key == "run.output_dir" ||
         key == "run.num_threads" || key == "run.gpu_processes" ||
         key == "run.gpu_wait_seconds" || key == "run.gpus" ||
         key == "trainer.rank" || absl::StartsWith(key, "trainer.machine") ||
         key == "trainer.ranks_per_machine" || key == "model.name" ||
         key == "trainer.rendezvous" || absl::EndsWith(key, ".listen") ||
         absl::EndsWith(key, "_listen") || absl::EndsWith(key, ".addresses") ||
         absl::StartsWith(key, "security.");
}

std::vector<std::string> DifferingKeys(const std::vector<RunResults>& runs) {
  std::set<std::string> keys;
  for (const RunResults& run : runs) {
    for (const auto& [key, value] : run.settings) {
      if (!IsPlace(key)) keys.insert(key);
    }
  }
  std::vector<std::string> differing;
  for (const std::string& key : keys) {
    if (std::any_of(runs.begin(), runs.end(), [&](const RunResults& run) {
          return SettingOf(run, key) != SettingOf(runs.front(), key);
        })) {
      differing.push_back(key);
    }
  }
  return differing;
}

// Returns "trainer.learning_rate=0.001": the settings of a run in which groups
// differ; a long value is cut.
std::string GroupName(const RunResults& run,
                      const std::vector<std::string>& differing) {
  std::vector<std::string> settings;
  for (const std::string& key : differing) {
    if (key == kSeedKey) continue;
    std::string value = SettingOf(run, key);
    if (value.size() > kMaxValueBytes) {
      value = absl::StrCat(Utf8Head(value, kMaxValueBytes - 3), "...");
    }
    settings.push_back(absl::StrCat(key, "=", value));
  }
  return settings.empty() ? "all" : absl::StrJoin(settings, " ");
}

// Returns the sweep's name of the setting of the run "NAME-seed-3"; empty if
// the run's name has another form or another seed.
std::string NameWithoutSeed(const RunResults& run) {
  absl::string_view name = run.name;
  const bool found = absl::ConsumeSuffix(
      &name, absl::StrCat("-seed-", SettingOf(run, kSeedKey)));
  return found ? std::string(name) : "";
}

// Gives groups their sweep's names, which are shorter than the settings, if
// each group has its own sweep's name.
void TakeNamesOfSweep(const std::vector<RunResults>& runs,
                      std::vector<RunGroup>* groups) {
  std::vector<std::string> names;
  for (const RunGroup& group : *groups) {
    const std::string name = NameWithoutSeed(runs[group.runs.front()]);
    const bool shared = std::ranges::all_of(group.runs, [&](size_t run) {
      return NameWithoutSeed(runs[run]) == name;
    });
    if (name.empty() || !shared || std::ranges::count(names, name) > 0) return;
    names.push_back(name);
  }
  for (size_t i = 0; i < names.size(); ++i) (*groups)[i].name = names[i];
}

std::vector<RunGroup> GroupRuns(const std::vector<RunResults>& runs,
                                const std::vector<std::string>& differing) {
  std::vector<RunGroup> groups;
  const auto belong_together = [&](const RunResults& a, const RunResults& b) {
    return std::all_of(
        differing.begin(), differing.end(), [&](const std::string& key) {
          return key == kSeedKey || SettingOf(a, key) == SettingOf(b, key);
        });
  };
  std::map<std::string, int> uses;  // of names, whose values are cut
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto found =
        std::find_if(groups.begin(), groups.end(), [&](const RunGroup& group) {
          return belong_together(runs[group.runs.front()], runs[i]);
        });
    if (found != groups.end()) {
      const bool is_known = std::ranges::any_of(found->runs, [&](size_t run) {
        return SettingOf(runs[run], kSeedKey) == SettingOf(runs[i], kSeedKey);
      });
      found->num_seeds += is_known ? 0 : 1;
      found->runs.push_back(i);
      continue;
    }
    std::string name = GroupName(runs[i], differing);
    const int use = ++uses[name];
    if (use > 1) absl::StrAppend(&name, " (", use, ")");
    groups.push_back({std::move(name), {i}});
  }
  TakeNamesOfSweep(runs, &groups);
  return groups;
}

// Name and marker, by which figures are comparable.
using FigureId = std::pair<std::string, std::string>;

FigureId IdOf(const std::string& name, const HeldOutFigures& held_out) {
  return {name, name == kMarkerRate ? held_out.marker : ""};
}

std::optional<Interval> Find(const HeldOutFigures& held_out,
                             const FigureId& id) {
  const auto found = held_out.figures.find(id.first);
  if (found == held_out.figures.end() || IdOf(id.first, held_out) != id) {
    return std::nullopt;
  }
  return found->second;
}

// Returns the mean of the present values, with its interval; nothing without a
// value. Student's t interval of two runs may exceed the range of a share.
std::optional<Interval> OverRuns(
    const std::vector<std::optional<Interval>>& values, bool is_share) {
  std::vector<double> means;
  Interval sum;
  for (const std::optional<Interval>& value : values) {
    if (!value.has_value()) continue;
    means.push_back(value->mean);
    sum.low += value->low;
    sum.high += value->high;
  }
  if (means.empty()) return std::nullopt;
  const auto count = static_cast<double>(means.size());
  if (!Agree(means)) {
    Interval interval = MeanInterval(means);
    if (is_share) {
      interval.low = std::max(interval.low, 0.0);
      interval.high = std::min(interval.high, 1.0);
    }
    return interval;
  }
  // Runs that agree say nothing about their spread, so their own intervals
  // count.
  return Interval{means.front(), sum.low / count, sum.high / count};
}

// Returns after - before over the runs that have both values: a run with only
// one value shows no change, and would move the mean.
std::optional<Interval> ChangeOver(std::vector<std::optional<Interval>> before,
                                   std::vector<std::optional<Interval>> after,
                                   bool is_share) {
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].has_value() && after[i].has_value()) continue;
    before[i].reset();
    after[i].reset();
  }
  const std::optional<Interval> from = OverRuns(before, is_share);
  const std::optional<Interval> to = OverRuns(after, is_share);
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  return Difference(*to, *from);
}

void CompareWithFirst(std::vector<ComparedFigure::Row>* rows) {
  for (size_t i = 1; i < rows->size(); ++i) {
    const std::optional<Interval>& first = rows->front().after;
    ComparedFigure::Row& row = (*rows)[i];
    if (!row.after.has_value() || !first.has_value()) continue;
    row.against_first = Difference(*row.after, *first);
  }
}

void FillCurves(const FigureId& id,
                const std::vector<RunResults>& runs,
                const std::vector<RunGroup>& groups,
                ComparedFigure* figure) {
  std::set<int64_t> steps;
  for (const RunResults& run : runs) {
    for (const auto& [step, held_out] : run.evaluations) {
      if (Find(held_out, id).has_value()) steps.insert(step);
    }
  }
  if (steps.size() < kMinCurve) return;
  figure->steps.assign(steps.begin(), steps.end());
  for (const RunResults& run : runs) {
    ComparedFigure::Curve& curve = figure->run_curves.emplace_back();
    for (const int64_t step : figure->steps) {
      const auto found = run.evaluations.find(step);
      curve.push_back(found == run.evaluations.end() ? std::nullopt
                                                     : Find(found->second, id));
    }
  }
  if (figure->groups.empty()) return;
  for (const RunGroup& group : groups) {
    ComparedFigure::Curve& curve = figure->group_curves.emplace_back();
    for (size_t i = 0; i < figure->steps.size(); ++i) {
      std::vector<std::optional<Interval>> values;
      for (const size_t run : group.runs) {
        values.push_back(figure->run_curves[run][i]);
      }
      curve.push_back(OverRuns(values, figure->is_share));
    }
  }
}

ComparedFigure CompareFigure(const FigureId& id,
                             const std::vector<RunResults>& runs,
                             const std::vector<RunGroup>& groups) {
  // In percent the probability of claims would often be 0.0.
  ComparedFigure figure{.name = id.first,
                        .marker = id.second,
                        .is_share = !absl::StartsWith(id.first, kDivergences) &&
                                    !absl::StartsWith(id.first, kClaims)};
  for (const RunResults& run : runs) {
    ComparedFigure::Row row{.before = Find(run.before, id),
                            .after = Find(run.after, id)};
    if (row.before.has_value() && row.after.has_value()) {
      row.change = Difference(*row.after, *row.before);
    }
    for (const std::optional<Interval>& value : {row.before, row.after}) {
      if (value.has_value() && (value->mean < 0 || value->mean > 1)) {
        figure.is_share = false;
      }
    }
    figure.runs.push_back(row);
  }
  if (groups.size() < runs.size()) {
    for (const RunGroup& group : groups) {
      std::vector<std::optional<Interval>> before;
      std::vector<std::optional<Interval>> after;
      for (const size_t run : group.runs) {
        before.push_back(figure.runs[run].before);
        after.push_back(figure.runs[run].after);
      }
      figure.groups.push_back(
          {.before = OverRuns(before, figure.is_share),
           .after = OverRuns(after, figure.is_share),
           .change = ChangeOver(before, after, figure.is_share)});
    }
  }
  CompareWithFirst(&figure.runs);
  CompareWithFirst(&figure.groups);
  FillCurves(id, runs, groups, &figure);
  return figure;
}

// Accuracy comes first, divergences come last.
std::vector<FigureId> FigureIds(const std::vector<RunResults>& runs) {
  std::set<FigureId> ids;
  for (const RunResults& run : runs) {
    for (const HeldOutFigures* held_out : {&run.before, &run.after}) {
      for (const auto& [name, interval] : held_out->figures) {
        ids.insert(IdOf(name, *held_out));
      }
    }
  }
  std::vector<FigureId> ordered(ids.begin(), ids.end());
  const auto rank = [](const std::string& name) {
    if (name == "accuracy") return 0;
    return absl::StartsWith(name, kDivergences) ? 2 : 1;
  };
  std::stable_sort(ordered.begin(),
                   ordered.end(),
                   [&](const FigureId& a, const FigureId& b) {
                     return rank(a.first) < rank(b.first);
                   });
  return ordered;
}

}  // namespace

Interval Difference(const Interval& a, const Interval& b) {
  const double mean = a.mean - b.mean;
  return {mean,
          mean - std::hypot(a.mean - a.low, b.high - b.mean),
          mean + std::hypot(a.high - a.mean, b.mean - b.low)};
}

bool Agree(const std::vector<double>& values) {
  constexpr double kRounding = 1e-12;
  const auto [least, most] = std::ranges::minmax(values);
  return most - least <= kRounding;
}

Comparison CompareRuns(std::vector<RunResults> runs) {
  std::map<std::string, int> uses;
  for (const RunResults& run : runs) ++uses[run.name];
  for (RunResults& run : runs) {
    if (uses[run.name] > 1) run.name = run.folder;
  }
  Comparison comparison;
  comparison.runs = std::move(runs);
  comparison.differing = DifferingKeys(comparison.runs);
  comparison.groups = GroupRuns(comparison.runs, comparison.differing);
  for (const FigureId& id : FigureIds(comparison.runs)) {
    comparison.figures.push_back(
        CompareFigure(id, comparison.runs, comparison.groups));
  }
  return comparison;
}

}  // namespace dapd
