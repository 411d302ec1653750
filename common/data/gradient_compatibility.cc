#include "common/data/gradient_compatibility.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using Measure = std::function<std::optional<double>(const PositionProducts&)>;

// Returns, for each problem, the mean over its positions that have the measure.
// A problem without such a position is left out.
std::vector<double> MeansByProblem(
    const std::vector<PositionProducts>& positions, const Measure& measure) {
  std::vector<double> sums;
  std::vector<int64_t> counts;
  for (const PositionProducts& position : positions) {
    if (position.problem >= sums.size()) {
      sums.resize(position.problem + 1, 0.0);
      counts.resize(position.problem + 1, 0);
    }
    const std::optional<double> value = measure(position);
    if (!value.has_value()) continue;
    sums[position.problem] += *value;
    ++counts[position.problem];
  }
  std::vector<double> means;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (counts[i] == 0) continue;
    means.push_back(sums[i] / static_cast<double>(counts[i]));
  }
  return means;
}

Interval MeanOver(const std::vector<PositionProducts>& positions,
                  uint64_t seed,
                  const Measure& measure) {
  const std::vector<double> means = MeansByProblem(positions, measure);
  return BootstrapOf(means.size(), seed, [&](const std::vector<double>& times) {
    double sum = 0.0;
    for (size_t i = 0; i < means.size(); ++i) sum += times[i] * means[i];
    return sum / static_cast<double>(means.size());
  });
}

// Returns sum_ij times_i times_j products_ij.
double Weighted(const std::vector<double>& times,
                const std::vector<double>& products) {
  double sum = 0.0;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] == 0.0) continue;
    double row = 0.0;
    for (size_t j = 0; j < times.size(); ++j) {
      row += times[j] * products[i * times.size() + j];
    }
    sum += times[i] * row;
  }
  return sum;
}

CompatibilityReport::OverAll OverAllOf(const GradientProducts& products,
                                       uint64_t seed) {
  const size_t count = products.problems.size();
  const auto drawn_problems = [&](const std::vector<double>& times) {
    double drawn = 0.0;
    for (size_t i = 0; i < count; ++i) {
      drawn += times[i] * static_cast<double>(products.problems[i]);
    }
    return drawn;
  };
  CompatibilityReport::OverAll result;
  result.dot = BootstrapOf(count, seed, [&](const auto& times) {
    const double drawn = drawn_problems(times);
    return Weighted(times, products.cross) / (drawn * drawn);
  });
  result.cosine = BootstrapOf(count, seed, [&](const auto& times) {
    const double squares =
        Weighted(times, products.first) * Weighted(times, products.second);
    return squares > 0.0 ? Weighted(times, products.cross) / std::sqrt(squares)
                         : 0.0;
  });
  const std::vector<double> once(count, 1.0);
  // Rounding could make the square of a zero gradient negative.
  const auto norm = [&](const std::vector<double>& squares) {
    return std::sqrt(std::max(0.0, Weighted(once, squares))) /
           drawn_problems(once);
  };
  result.first_norm = norm(products.first);
  result.second_norm = norm(products.second);
  return result;
}

std::string Shown(const Interval& interval) {
  return absl::StrFormat(
      "%.3g [%.3g, %.3g]", interval.mean, interval.low, interval.high);
}

}  // namespace

std::optional<double> PositionProducts::Cosine() const {
  const double norms = first_norm * second_norm;
  if (!(norms > 0.0)) return std::nullopt;
  return dot / norms;
}

CompatibilityReport SummarizeCompatibility(
    const std::vector<PositionProducts>& positions,
    const GradientProducts& products,
    uint64_t seed) {
  CompatibilityReport report;
  report.positions = static_cast<int64_t>(positions.size());
  report.sums = static_cast<int64_t>(products.problems.size());
  for (const int64_t problems : products.problems) report.problems += problems;
  for (const PositionProducts& position : positions) {
    report.positions_without_cosine += position.Cosine().has_value() ? 0 : 1;
  }
  CompatibilityReport::ByPosition& by_position = report.by_position;
  by_position.dot = MeanOver(
      positions, seed, [](const PositionProducts& at) { return at.dot; });
  by_position.cosine = MeanOver(
      positions, seed, [](const PositionProducts& at) { return at.Cosine(); });
  // This measure is a share; its interval has a width even where all values
  // agree.
  by_position.positive = BootstrapInterval(
      MeansByProblem(
          positions,
          [](const PositionProducts& at) { return at.dot > 0.0 ? 1.0 : 0.0; }),
      seed);
  by_position.first_norm =
      MeanOver(positions, seed, [](const auto& at) { return at.first_norm; });
  by_position.second_norm =
      MeanOver(positions, seed, [](const auto& at) { return at.second_norm; });
  report.over_all = OverAllOf(products, seed);
  return report;
}

nlohmann::ordered_json ToJson(const CompatibilityReport& report) {
  const CompatibilityReport::ByPosition& by_position = report.by_position;
  const CompatibilityReport::OverAll& over_all = report.over_all;
  return {{"problems", report.problems},
          {"positions", report.positions},
          {"positions_without_cosine", report.positions_without_cosine},
          {"sums", report.sums},
          {"by_position",
           {{"dot", ToJson(by_position.dot)},
            {"cosine", ToJson(by_position.cosine)},
            {"positive", ToJson(by_position.positive)},
            {"first_norm", ToJson(by_position.first_norm)},
            {"second_norm", ToJson(by_position.second_norm)}}},
          {"over_all",
           {{"dot", ToJson(over_all.dot)},
            {"cosine", ToJson(over_all.cosine)},
            {"first_norm", over_all.first_norm},
            {"second_norm", over_all.second_norm}}}};
}

std::string ToText(const CompatibilityReport& report) {
  const CompatibilityReport::ByPosition& by_position = report.by_position;
  const CompatibilityReport::OverAll& over_all = report.over_all;
  std::string text = absl::StrFormat(
      "%d positions of %d problems (95 %%, problems drawn with all their "
      "positions)\n"
      "%-28s%-30s%s\n"
      "%-28s%-30s%s\n"
      "%-28s%-30s%s\n"
      "the gradients agree (dot > 0) at %.1f %% [%.1f, %.1f] of the positions\n"
      "norms: first %.3g at a position, %.3g over all; second %.3g, %.3g",
      report.positions,
      report.problems,
      "",
      "cosine",
      "dot product",
      "by position, averaged",
      Shown(by_position.cosine),
      Shown(by_position.dot),
      "of the gradients over all",
      Shown(over_all.cosine),
      Shown(over_all.dot),
      100 * by_position.positive.mean,
      100 * by_position.positive.low,
      100 * by_position.positive.high,
      by_position.first_norm.mean,
      over_all.first_norm,
      by_position.second_norm.mean,
      over_all.second_norm);
  if (report.positions_without_cosine > 0) {
    absl::StrAppend(&text,
                    "\n",
                    report.positions_without_cosine,
                    " positions have no cosine: a gradient is zero there");
  }
  if (report.sums < report.problems) {
    absl::StrAppend(&text,
                    "\nintervals over all draw ",
                    report.sums,
                    " groups of problems, for lack of memory");
  }
  return text;
}

}  // namespace dapd
