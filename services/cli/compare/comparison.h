// Comparison shows runs side by side, with the differences of their settings
// and results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/base/json.h"
#include "common/data/confidence_interval.h"
#include "services/cli/compare/run_results.h"

namespace dapd {

// Returns a - b with a 95 % interval from the intervals of a and b, taken as
// independent: Newcombe's square-and-add (Statistics in Medicine 17, 1998,
// method 10), which keeps the asymmetry of intervals near 0 and 1. Values over
// common problems move together; the interval of their difference is then wider
// than necessary (paired_seeds.h).
Interval Difference(const Interval& a, const Interval& b);

// Returns whether all of `values`, at least one, are equal up to the rounding
// of equal shares.
bool Agree(const std::vector<double>& values);

// Runs that differ only in their seed and their place.
struct RunGroup {
  // "NAME" if its runs, and no other group's, are a sweep's "NAME-seed-1",
  // "NAME-seed-2"; otherwise the settings in which groups differ.
  std::string name;
  std::vector<size_t> runs;  // indices
  // The number of different seeds; all runs that share a seed count.
  size_t num_seeds = 1;
};

// A held-out figure of all runs.
struct ComparedFigure {
  std::string name;    // as in HeldOutFigures
  std::string marker;  // of a "marker_rate"
  bool is_share = false;
  struct Row {
    std::optional<Interval> before;
    std::optional<Interval> after;
    std::optional<Interval> change;         // after - before
    std::optional<Interval> against_first;  // after - the first row's after
  };
  std::vector<Row> runs;  // by run
  // By group: means over the runs that have the figure, with Student's t
  // interval; with one run, or if all agree, the mean of their own intervals. A
  // change counts runs that have both values. Empty if no group has two runs.
  std::vector<Row> groups;
  // Curves over steps, if runs were evaluated within training: the ascending
  // steps of all evaluations and, by run or group, the value at each. Empty
  // with fewer than three steps.
  std::vector<int64_t> steps;
  using Curve = std::vector<std::optional<Interval>>;
  std::vector<Curve> run_curves;
  std::vector<Curve> group_curves;  // means as in `groups`
};

struct Comparison {
  std::vector<RunResults> runs;  // at least one, each name once
  // Keys whose values differ, without the keys of a run's place and addresses.
  std::vector<std::string> differing;
  std::vector<RunGroup> groups;
  std::vector<ComparedFigure> figures;
  bool is_paired = false;  // the groups' differences are (paired_seeds.h)
};

// Runs with the same name are distinguished by their folders.
Comparison CompareRuns(std::vector<RunResults> runs);

// Returns the comparison for a terminal; ends with a newline.
std::string ComparisonText(const Comparison& comparison);
//
//   {"runs": [{"name", "folder", "finished", "step", "steps", "settings",
//              "loss"}],
//    "figures": [{"name", "is_share",
//                 "runs": [{"run", "before", "after", "change",
//                           "against_first", "by_step"}],
//                 "groups": [the same with "group"], "steps"}],
//    "groups": [{"name", "runs", "seeds"}], "paired": false}
//
// Intervals are {"mean", "low", "high"} or null, "by_step" a list of them, one
// for each of "steps"; a marker's share has its "marker".
nlohmann::ordered_json ComparisonJson(const Comparison& comparison);
// Returns one page that needs no server, with the curves of all runs.
std::string ComparisonHtml(const Comparison& comparison);
// Returns whether `html`, or its beginning, is such a page.
bool IsComparisonHtml(absl::string_view html);

}  // namespace dapd
