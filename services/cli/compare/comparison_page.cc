// The page of a comparison: its JSON, and the curves of all runs.

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "common/charts/chart_files.h"
#include "common/charts/html_page.h"
#include "services/cli/compare/compare_files.h"
#include "services/cli/compare/comparison.h"
#include "services/cli/compare/comparison_labels.h"

namespace dapd {
namespace {

using OrderedJson = nlohmann::ordered_json;

// A chart of the page, of one column of every run's history.
struct Panel {
  std::string column;
  std::string title;
  bool is_share = false;
  bool is_log = false;  // may be shown on a logarithmic scale
};

std::vector<Panel> Panels(const Comparison& comparison) {
  std::vector<Panel> panels = {
      {"loss", "Total loss", false, true},
      {"rollout/correct_fraction", "Right answers while training", true},
      {"gradient_norm", "Gradient norm", false, true},
      {"learning_rate", "Learning rate"},
      {"rollout/mean_tokens", "Rollout length"},
      {"rollout/boxed_fraction", "Answers with a box", true},
      {"rollout/truncated_fraction", "Truncated answers", true}};
  std::set<std::string> columns;
  for (const RunResults& run : comparison.runs) {
    for (const auto& [column, values] : run.history["series"].items()) {
      columns.insert(column);
    }
  }
  for (const std::string& column : columns) {
    absl::string_view term = column;
    if (absl::ConsumePrefix(&term, "terms/") &&
        absl::ConsumeSuffix(&term, "/unclipped")) {
      panels.push_back(
          {column,
           absl::StrCat("True KL, ",
                        absl::StrReplaceAll(
                            term, {{"/teachers/", ", from "}, {"_", " "}})),
           false,
           true});
    }
  }
  panels.erase(std::remove_if(panels.begin(),
                              panels.end(),
                              [&](const Panel& panel) {
                                return !columns.contains(panel.column);
                              }),
               panels.end());
  return panels;
}

// Keeps only the columns that the page shows.
OrderedJson CurvesOf(const RunResults& run, const std::vector<Panel>& panels) {
  OrderedJson series = OrderedJson::object();
  for (const Panel& panel : panels) {
    const OrderedJson& all = run.history["series"];
    if (all.contains(panel.column)) series[panel.column] = all[panel.column];
  }
  return {{"steps", run.history["steps"]}, {"series", series}};
}

}  // namespace

bool IsComparisonHtml(absl::string_view html) {
  return absl::StrContains(html, "<title>DAPD: runs compared</title>");
}

std::string ComparisonHtml(const Comparison& comparison) {
  static const HtmlPage& page = *new HtmlPage(
      kCompareHtml, {kDomJs, kScaleJs, kChartJs, kControlsJs, kCompareJs});
  const std::vector<Panel> panels = Panels(comparison);
  OrderedJson data = ComparisonJson(comparison);
  for (size_t i = 0; i < comparison.runs.size(); ++i) {
    data["runs"][i]["curves"] = CurvesOf(comparison.runs[i], panels);
  }
  for (size_t i = 0; i < comparison.groups.size(); ++i) {
    data["groups"][i]["label"] = GroupLabel(comparison.groups[i]);
  }
  OrderedJson charts = OrderedJson::array();
  for (const Panel& panel : panels) {
    charts.push_back({{"column", panel.column},
                      {"title", panel.title},
                      {"is_share", panel.is_share},
                      {"is_log", panel.is_log}});
  }
  data["charts"] = charts;
  for (size_t i = 0; i < comparison.figures.size(); ++i) {
    const ComparedFigure& figure = comparison.figures[i];
    data["figures"][i]["title"] =
        FigureTitle(figure, absl::StrReplaceAll(figure.name, {{"_", " "}}));
  }
  data["differing"] = comparison.differing;
  return page.With(data);
}

}  // namespace dapd
