// The text of a comparison, for a terminal.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/printable.h"
#include "common/base/utf8.h"
#include "services/cli/compare/comparison.h"
#include "services/cli/compare/comparison_labels.h"
#include "services/cli/terminal/text_table.h"

namespace dapd {
namespace {

constexpr size_t kMaxSettingBytes = 40;

std::string Table(const std::vector<Cells>& rows) {
  std::string text;
  for (const std::string& line : AlignColumns(rows)) {
    absl::StrAppend(&text, "  ", line, "\n");
  }
  return text;
}

// Formats a value; a value that rounds to zero has no sign.
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

std::vector<Cells> Transposed(const std::vector<Cells>& rows) {
  std::vector<Cells> columns(rows[0].size());
  for (const Cells& row : rows) {
    for (size_t i = 0; i < columns.size(); ++i) columns[i].push_back(row[i]);
  }
  return columns;
}

// Makes a row for each run or, if they differ in more settings than there are
// runs, a column for each, since the settings would not fit side by side.
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
  const bool is_tall = comparison.differing.size() > comparison.runs.size();
  return Table(is_tall ? Transposed(rows) : rows);
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

// Returns a figure over steps, with a row for each group, or for each run
// without groups. If there are many steps, it shows some, with the first and
// the last.
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

}  // namespace dapd
