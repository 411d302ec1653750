#include "common/training/clip_watch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

#include "common/base/json.h"
#include "common/base/printable.h"

namespace dapd {
namespace {

// A least-squares line through (x, y), x ascending.
struct Line {
  double slope = 0.0;
  double slope_error = 0.0;  // standard error
  double first = 0.0;        // values of the line at the first and the last x
  double last = 0.0;
  double mean = 0.0;  // mean of y

  bool Falls() const { return slope < -ClipWatch::kMinErrors * slope_error; }
  bool Rises() const { return slope > ClipWatch::kMinErrors * slope_error; }
};

Line FitLine(const std::vector<double>& x, const std::vector<double>& y) {
  const auto count = static_cast<double>(x.size());
  double mean_x = 0.0;
  Line line;
  for (size_t i = 0; i < x.size(); ++i) {
    mean_x += x[i] / count;
    line.mean += y[i] / count;
  }
  double sum_xx = 0.0;
  double sum_xy = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum_xx += (x[i] - mean_x) * (x[i] - mean_x);
    sum_xy += (x[i] - mean_x) * (y[i] - line.mean);
  }
  line.slope = sum_xy / sum_xx;
  const auto at = [&](double where) {
    return line.mean + line.slope * (where - mean_x);
  };
  line.first = at(x.front());
  line.last = at(x.back());

  double squares = 0.0;
  double neighbours = 0.0;
  double previous = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double residual = y[i] - at(x[i]);
    squares += residual * residual;
    neighbours += residual * previous;
    previous = residual;
  }
  // Short windows cannot tell a correlation near 1 from a trend.
  constexpr double kMaxCorrelation = 0.9;
  const double correlation =
      squares > 0.0 ? std::clamp(neighbours / squares, 0.0, kMaxCorrelation)
                    : 0.0;
  line.slope_error = std::sqrt(squares / (count - 2.0) / sum_xx *
                               (1.0 + correlation) / (1.0 - correlation));
  return line;
}

}  // namespace

std::string Describe(const ClipFinding& finding) {
  return absl::StrFormat(
      "the clip hides that %s gets worse: over %d steps to step %d its loss "
      "fell from %.4g to %.4g while its true divergence rose from %.4g to "
      "%.4g. An entry of the vocabulary that adds more than the clip, %.4g, "
      "passes no gradient. Lower trainer.learning_rate, or raise "
      "objective.component_clip (for one term: its clip), or remove the clip "
      "(.inf): docs/experiments.md",
      Printable(finding.term),
      finding.window,
      finding.step,
      finding.value_before,
      finding.value_after,
      finding.unclipped_before,
      finding.unclipped_after,
      finding.clip);
}

ClipWatch::ClipWatch(const std::vector<Term>& terms) {
  for (const Term& term : terms) {
    if (std::isinf(term.divergence.clip) || term.weight == 0.0) continue;
    const auto passes = TeacherPasses({term});
    terms_.push_back({.name = term.name,
                      .clip = term.divergence.clip,
                      .reads_snapshot = std::ranges::any_of(
                          passes, [](const TeacherPass& pass) {
                            return pass.weights == WeightSet::kSnapshot;
                          })});
  }
}

ClipWatch::Watched* ClipWatch::Find(const std::string& name) {
  const auto found = std::ranges::find(terms_, name, &Watched::name);
  return found == terms_.end() ? nullptr : &*found;
}

std::vector<ClipFinding> ClipWatch::Add(StepReport* report) {
  std::vector<ClipFinding> news;
  BeginStep();
  for (TermMetrics& metrics : report->objective.terms) {
    Watched* const term = Find(metrics.name);
    if (term == nullptr) continue;
    metrics.clip_hides = Take(*term,
                              metrics.tokens,
                              {report->step, metrics.value, metrics.unclipped});
    if (term->is_news) news.push_back(*term->newest);
  }
  EndStep(report->snapshot_version);
  return news;
}

void ClipWatch::Recall(const nlohmann::ordered_json& line) {
  const auto step = line.at("step").get<int64_t>();
  BeginStep();
  for (Watched& term : terms_) {
    if (!line.contains("terms") || !line["terms"].contains(term.name)) continue;
    const nlohmann::ordered_json& row = line["terms"][term.name];
    // JSON cannot express a number that is not finite.
    if (row.at("value").is_null() || row.at("unclipped").is_null()) continue;
    Take(term,
         row.at("tokens").get<int64_t>(),
         {step,
          row.at("value").get<double>(),
          row.at("unclipped").get<double>()});
  }
  // Lines of early versions lack the key.
  if (line.contains("snapshot_version")) {
    EndStep(line["snapshot_version"].get<int64_t>());
  }
}

std::vector<ClipFinding> ClipWatch::Findings() const {
  std::vector<ClipFinding> findings;
  for (const Watched& term : terms_) {
    if (term.newest.has_value()) findings.push_back(*term.newest);
  }
  return findings;
}

void ClipWatch::BeginStep() {
  if (teaches_ == taught_) return;
  taught_ = teaches_;
  for (Watched& term : terms_) {
    if (term.reads_snapshot) term.points.clear();
  }
}

// A report names the snapshot that its step left behind, which teaches only the
// next step.
void ClipWatch::EndStep(int64_t snapshot_version) {
  teaches_ = snapshot_version;
}

bool ClipWatch::Take(Watched& term, int64_t tokens, const Point& point) {
  term.is_news = false;
  if (tokens == 0 || !std::isfinite(point.value) ||
      !std::isfinite(point.unclipped)) {
    return false;
  }
  term.points.push_back(point);
  if (term.points.size() > kWindows.back()) term.points.pop_front();
  for (const size_t window : kWindows) {
    if (term.points.size() < window) break;
    std::vector<double> steps;
    std::vector<double> values;
    std::vector<double> divergences;
    for (size_t i = term.points.size() - window; i < term.points.size(); ++i) {
      steps.push_back(static_cast<double>(term.points[i].step));
      values.push_back(term.points[i].value);
      divergences.push_back(term.points[i].unclipped);
    }
    const Line value = FitLine(steps, values);
    const Line unclipped = FitLine(steps, divergences);
    if (!value.Falls() || !unclipped.Rises() ||
        unclipped.last - unclipped.first <
            kMinRise * std::abs(unclipped.mean)) {
      continue;
    }
    term.newest = ClipFinding{.term = term.name,
                              .clip = term.clip,
                              .step = point.step,
                              .window = static_cast<int64_t>(window),
                              .value_before = value.first,
                              .value_after = value.last,
                              .unclipped_before = unclipped.first,
                              .unclipped_after = unclipped.last};
    term.is_news = point.step >= term.quiet_until;
    if (term.is_news) {
      term.quiet_until = point.step + term.newest->window;
    }
    return true;
  }
  return false;
}

}  // namespace dapd
