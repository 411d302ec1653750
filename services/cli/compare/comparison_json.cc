// The JSON form of a comparison.

#include <utility>

#include "services/cli/compare/comparison.h"

namespace dapd {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson OptionalJson(const std::optional<Interval>& interval) {
  return interval.has_value() ? ToJson(*interval) : OrderedJson();
}

OrderedJson RowJson(const char* kind,
                    const std::string& name,
                    const ComparedFigure::Row& row,
                    const ComparedFigure::Curve& curve) {
  OrderedJson by_step = OrderedJson::array();
  for (const std::optional<Interval>& value : curve) {
    by_step.push_back(OptionalJson(value));
  }
  return {{kind, name},
          {"before", OptionalJson(row.before)},
          {"after", OptionalJson(row.after)},
          {"change", OptionalJson(row.change)},
          {"against_first", OptionalJson(row.against_first)},
          {"by_step", by_step}};
}

// Returns the rows of `owners`, runs or groups as `kind` says; `curves` may be
// empty.
template <typename Owner>
OrderedJson RowsJson(const char* kind,
                     const std::vector<Owner>& owners,
                     const std::vector<ComparedFigure::Row>& rows,
                     const std::vector<ComparedFigure::Curve>& curves) {
  OrderedJson json = OrderedJson::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    json.push_back(
        RowJson(kind,
                owners[i].name,
                rows[i],
                i < curves.size() ? curves[i] : ComparedFigure::Curve()));
  }
  return json;
}

}  // namespace

OrderedJson ComparisonJson(const Comparison& comparison) {
  OrderedJson runs = OrderedJson::array();
  for (const RunResults& run : comparison.runs) {
    OrderedJson settings = OrderedJson::object();
    for (const std::string& key : comparison.differing) {
      settings[key] = SettingOf(run, key);
    }
    runs.push_back(
        {{"name", run.name},
         {"folder", run.folder},
         {"finished", run.finished},
         {"step", run.step},
         {"steps", run.steps},
         {"settings", settings},
         {"loss",
          run.loss.has_value() ? OrderedJson(*run.loss) : OrderedJson()}});
  }
  OrderedJson groups = OrderedJson::array();
  for (const RunGroup& group : comparison.groups) {
    OrderedJson names = OrderedJson::array();
    for (const size_t run : group.runs) {
      names.push_back(comparison.runs[run].name);
    }
    groups.push_back(
        {{"name", group.name}, {"runs", names}, {"seeds", group.num_seeds}});
  }
  OrderedJson figures = OrderedJson::array();
  for (const ComparedFigure& figure : comparison.figures) {
    OrderedJson json = {
        {"name", figure.name},
        {"is_share", figure.is_share},
        {"steps", figure.steps},
        {"runs",
         RowsJson("run", comparison.runs, figure.runs, figure.run_curves)},
        {"groups",
         RowsJson(
             "group", comparison.groups, figure.groups, figure.group_curves)}};
    if (!figure.marker.empty()) json["marker"] = figure.marker;
    figures.push_back(std::move(json));
  }
  return {{"runs", runs},
          {"groups", groups},
          {"figures", figures},
          {"paired", comparison.is_paired}};
}

}  // namespace dapd
