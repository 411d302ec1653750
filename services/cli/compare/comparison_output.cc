// A comparison as text, JSON and a page.

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "common/base/printable.h"
#include "common/base/utf8.h"
#include "common/charts/chart_files.h"
#include "common/charts/html_page.h"
#include "common/data/marker_label.h"
#include "services/cli/compare/compare_files.h"
#include "services/cli/compare/comparison.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

constexpr size_t kMaxSettingBytes = 40;  // in a table

// --- Text --------------------------------------------------------------------

// Characters, as a terminal counts them: continuation bytes take no room.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
      }));
}

// Columns as wide as their widest cell.
std::string Table(const std::vector<Cells>& rows) {
  std::vector<size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(
          &line, " ", row[i], std::string(widths[i] - Width(row[i]) + 1, ' '));
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

// What rounds to nothing has no sign.
std::string NumberText(double value, bool is_share) {
  const std::string text = is_share ? absl::StrFormat("%.1f", 100 * value)
                                    : absl::StrFormat("%.4g", value);
  return text == "-0.0" || text == "-0" ? text.substr(1) : text;
}

std::string IntervalText(const std::optional<Interval>& interval,
                         bool is_share,
                         bool is_difference) {
  if (!interval.has_value()) return "-";
  const std::string mean = NumberText(interval->mean, is_share);
  const bool is_more = interval->mean > 0 && mean != NumberText(0, is_share);
  return absl::StrCat(is_difference && is_more ? "+" : "",
                      mean,
                      is_share ? (is_difference ? " points [" : " % [") : " [",
                      NumberText(interval->low, is_share),
                      ", ",
                      NumberText(interval->high, is_share),
                      "]");
}

std::string Shortened(const std::string& text) {
  return Printable(
      text.size() <= kMaxSettingBytes
          ? text
          : absl::StrCat(Utf8Head(text, kMaxSettingBytes - 3), "..."));
}

std::string SettingOf(const RunResults& run, const std::string& key) {
  const auto found = run.settings.find(key);
  return found == run.settings.end() ? "" : found->second;
}

std::string RunsTable(const Comparison& comparison) {
  std::vector<Cells> rows = {{"run", "steps", "loss"}};
  for (const std::string& key : comparison.differing) rows[0].push_back(key);
  for (const RunResults& run : comparison.runs) {
    Cells row = {
        Printable(run.name),
        run.finished ? absl::StrCat(run.step)
                     : absl::StrCat(run.step, " of ", run.steps),
        run.loss.has_value() ? absl::StrFormat("%.4g", *run.loss) : "-"};
    for (const std::string& key : comparison.differing) {
      row.push_back(Shortened(SettingOf(run, key)));
    }
    rows.push_back(std::move(row));
  }
  return Table(rows);
}

// "slow (3 runs)", or "slow (3 runs of 2 seeds)".
std::string GroupLabel(const RunGroup& group) {
  const size_t runs = group.runs.size();
  std::string label =
      absl::StrCat(group.name, " (", runs, runs == 1 ? " run" : " runs");
  if (group.num_seeds < runs) {
    absl::StrAppend(&label,
                    " of ",
                    group.num_seeds,
                    group.num_seeds == 1 ? " seed" : " seeds");
  }
  return label + ")";
}

Cells FigureCells(const std::string& name,
                  const ComparedFigure& figure,
                  const ComparedFigure::Row& row) {
  return {name,
          IntervalText(row.before, figure.is_share, false),
          IntervalText(row.after, figure.is_share, false),
          IntervalText(row.change, figure.is_share, true),
          IntervalText(row.against_first, figure.is_share, true)};
}

std::string FigureTable(const Comparison& comparison,
                        const ComparedFigure& figure) {
  std::vector<Cells> rows = {
      {"", "before", "after", "change", "against the first"}};
  for (size_t i = 0; i < figure.runs.size(); ++i) {
    rows.push_back(FigureCells(
        Printable(comparison.runs[i].name), figure, figure.runs[i]));
  }
  for (size_t i = 0; i < figure.groups.size(); ++i) {
    const RunGroup& group = comparison.groups[i];
    if (i == 0) {
      rows.push_back(
          {comparison.is_paired ? "over seeds, paired" : "over seeds"});
    }
    rows.push_back(FigureCells(absl::StrCat("  ", Printable(GroupLabel(group))),
                               figure,
                               figure.groups[i]));
  }
  return Table(rows);
}

constexpr size_t kMaxColumns = 8;  // of steps

// Of a figure against the step, a row a group, or a run where there are no
// groups; of many steps some, the first and the last among them.
std::string CurveTable(const Comparison& comparison,
                       const ComparedFigure& figure) {
  const bool by_group = !figure.group_curves.empty();
  const std::vector<ComparedFigure::Curve>& curves =
      by_group ? figure.group_curves : figure.run_curves;
  const size_t last = figure.steps.size() - 1;
  const size_t columns = std::min(kMaxColumns, figure.steps.size());
  std::vector<Cells> rows = {{"step"}};
  for (size_t i = 0; i < curves.size(); ++i) {
    rows.push_back({Printable(by_group ? comparison.groups[i].name
                                       : comparison.runs[i].name)});
  }
  for (size_t column = 0; column < columns; ++column) {
    const size_t at = column * last / (columns - 1);
    rows[0].push_back(absl::StrCat(figure.steps[at]));
    for (size_t i = 0; i < curves.size(); ++i) {
      rows[i + 1].push_back(
          IntervalText(curves[i][at], figure.is_share, false));
    }
  }
  return Table(rows);
}

// `marker_rate, with " = "`, on the page with `words` for the name.
std::string FigureTitle(const ComparedFigure& figure,
                        const std::string& words) {
  return figure.marker.empty()
             ? Printable(words)
             : absl::StrCat(Printable(words), ", ", MarkerLabel(figure.marker));
}

// --- JSON --------------------------------------------------------------------

Json OptionalJson(const std::optional<Interval>& interval) {
  return interval.has_value() ? ToJson(*interval) : Json();
}

Json RowJson(const char* kind,
             const std::string& name,
             const ComparedFigure::Row& row,
             const ComparedFigure::Curve& curve) {
  Json by_step = Json::array();
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

// Empty where the figure has no curves.
ComparedFigure::Curve CurveAt(const std::vector<ComparedFigure::Curve>& curves,
                              size_t i) {
  return i < curves.size() ? curves[i] : ComparedFigure::Curve();
}

// --- The page ----------------------------------------------------------------

// A chart of the page: one column of every run's history.
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
           absl::StrCat("True KL, ", absl::StrReplaceAll(term, {{"_", " "}})),
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

// The columns that the page shows, and no more.
Json CurvesOf(const RunResults& run, const std::vector<Panel>& panels) {
  Json series = Json::object();
  for (const Panel& panel : panels) {
    const Json& all = run.history["series"];
    if (all.contains(panel.column)) series[panel.column] = all[panel.column];
  }
  return {{"steps", run.history["steps"]}, {"series", series}};
}

}  // namespace

std::string ComparisonText(const Comparison& comparison) {
  std::string text = RunsTable(comparison);
  for (const ComparedFigure& figure : comparison.figures) {
    absl::StrAppend(
        &text,
        "\nheld out: ",
        FigureTitle(figure, figure.name),
        &figure == &comparison.figures.front() ? " (95 % intervals)\n" : "\n",
        FigureTable(comparison, figure));
    if (figure.is_share && !figure.steps.empty()) {
      absl::StrAppend(&text, "\n", CurveTable(comparison, figure));
    }
  }
  if (comparison.figures.empty()) {
    absl::StrAppend(&text,
                    "\nno run has a held-out evaluation (evaluation.path)\n");
  }
  return text;
}

Json ComparisonJson(const Comparison& comparison) {
  Json runs = Json::array();
  for (const RunResults& run : comparison.runs) {
    Json settings = Json::object();
    for (const std::string& key : comparison.differing) {
      settings[key] = SettingOf(run, key);
    }
    runs.push_back({{"name", run.name},
                    {"folder", run.folder},
                    {"finished", run.finished},
                    {"step", run.step},
                    {"steps", run.steps},
                    {"settings", settings},
                    {"loss", run.loss.has_value() ? Json(*run.loss) : Json()}});
  }
  Json groups = Json::array();
  for (const RunGroup& group : comparison.groups) {
    Json names = Json::array();
    for (const size_t run : group.runs) {
      names.push_back(comparison.runs[run].name);
    }
    groups.push_back(
        {{"name", group.name}, {"runs", names}, {"seeds", group.num_seeds}});
  }
  Json figures = Json::array();
  for (const ComparedFigure& figure : comparison.figures) {
    Json of_runs = Json::array();
    for (size_t i = 0; i < figure.runs.size(); ++i) {
      of_runs.push_back(RowJson("run",
                                comparison.runs[i].name,
                                figure.runs[i],
                                CurveAt(figure.run_curves, i)));
    }
    Json of_groups = Json::array();
    for (size_t i = 0; i < figure.groups.size(); ++i) {
      of_groups.push_back(RowJson("group",
                                  comparison.groups[i].name,
                                  figure.groups[i],
                                  CurveAt(figure.group_curves, i)));
    }
    Json json = {{"name", figure.name},
                 {"is_share", figure.is_share},
                 {"steps", figure.steps},
                 {"runs", of_runs},
                 {"groups", of_groups}};
    if (!figure.marker.empty()) json["marker"] = figure.marker;
    figures.push_back(std::move(json));
  }
  return {{"runs", runs},
          {"groups", groups},
          {"figures", figures},
          {"paired", comparison.is_paired}};
}

std::string ComparisonHtml(const Comparison& comparison) {
  static const HtmlPage& page =
      *new HtmlPage(kCompareHtml, {kDomJs, kScaleJs, kChartJs, kCompareJs});
  const std::vector<Panel> panels = Panels(comparison);
  Json data = ComparisonJson(comparison);
  for (size_t i = 0; i < comparison.runs.size(); ++i) {
    data["runs"][i]["curves"] = CurvesOf(comparison.runs[i], panels);
  }
  for (size_t i = 0; i < comparison.groups.size(); ++i) {
    data["groups"][i]["label"] = GroupLabel(comparison.groups[i]);
  }
  Json charts = Json::array();
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
