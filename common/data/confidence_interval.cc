#include "common/data/confidence_interval.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "common/base/json.h"

namespace dapd {
namespace {

constexpr double kNormalQuantile975 = 1.959963984540054;

double Mean(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

constexpr size_t kResamples = 10000;

// Returns the middle 95 % of `resampled`, which has kResamples values, around
// `mean`.
Interval PercentileInterval(double mean, std::vector<double> resampled) {
  std::sort(resampled.begin(), resampled.end());
  constexpr size_t kTail = kResamples / 40;
  return {mean, resampled[kTail - 1], resampled[kResamples - kTail]};
}

double FindStudentQuantile975(int degrees_of_freedom) {
  // Bisects the distribution function, which Simpson's rule computes from the
  // density.
  const double n = degrees_of_freedom;
  const double scale = std::exp(std::lgamma((n + 1) / 2) - std::lgamma(n / 2)) /
                       std::sqrt(n * M_PI);
  const auto density = [&](double t) {
    return scale * std::pow(1 + t * t / n, -(n + 1) / 2);
  };
  const auto mass_to = [&](double t) {
    constexpr int kPieces = 2000;
    const double h = t / kPieces;
    double sum = density(0) + density(t);
    for (int i = 1; i < kPieces; ++i) {
      sum += (i % 2 == 1 ? 4 : 2) * density(i * h);
    }
    return sum * h / 3;
  };
  double low = 0.0;
  double high = 13.0;  // the quantile for one degree of freedom is 12.706
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (mass_to(middle) < 0.475 ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double StudentQuantile975(int degrees_of_freedom) {
  // A comparison of many evaluations asks thousands of times for a few of these
  // quantiles, and each of them takes milliseconds.
  static thread_local std::map<int, double> known;
  const auto [found, is_new] = known.try_emplace(degrees_of_freedom);
  if (is_new) found->second = FindStudentQuantile975(degrees_of_freedom);
  return found->second;
}

Interval MeanInterval(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  const double mean = Mean(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  if (values.size() == 1) return {mean, mean, mean};
  const double half = StudentQuantile975(static_cast<int>(values.size()) - 1) *
                      std::sqrt(squares / (count - 1) / count);
  return {mean, mean - half, mean + half};
}

Interval WilsonInterval(double share, double count) {
  const double z2 = kNormalQuantile975 * kNormalQuantile975;
  const double center = (share + z2 / (2 * count)) / (1 + z2 / count);
  const double half =
      kNormalQuantile975 *
      std::sqrt(share * (1 - share) / count + z2 / (4 * count * count)) /
      (1 + z2 / count);
  // At 0 and 1 the bound is the share itself; rounding would miss it.
  return {share,
          share == 0.0 ? 0.0 : std::max(0.0, center - half),
          share == 1.0 ? 1.0 : std::min(1.0, center + half)};
}

Interval BootstrapMean(const std::vector<double>& values, uint64_t seed) {
  if (values.empty()) return {};
  // The standard fixes the numbers of this generator, but not the numbers of
  // its distributions.
  std::mt19937_64 random(seed);
  const size_t count = values.size();
  std::vector<double> means(kResamples);
  for (double& mean : means) {
    double sum = 0.0;
    for (size_t i = 0; i < count; ++i) sum += values[random() % count];
    mean = sum / static_cast<double>(count);
  }
  return PercentileInterval(Mean(values), std::move(means));
}

Interval BootstrapInterval(const std::vector<double>& values, uint64_t seed) {
  if (values.empty()) return {};
  if (std::ranges::count(values, values.front()) == std::ssize(values)) {
    return WilsonInterval(values.front(), static_cast<double>(values.size()));
  }
  return BootstrapMean(values, seed);
}

Interval BootstrapShares(const std::vector<int64_t>& counts,
                         int64_t of,
                         uint64_t seed) {
  int64_t sum = 0;
  std::vector<double> shares;
  for (const int64_t count : counts) {
    sum += count;
    shares.push_back(static_cast<double>(count) / static_cast<double>(of));
  }
  Interval interval = BootstrapInterval(shares, seed);
  if (!counts.empty()) {
    interval.mean =
        static_cast<double>(sum) / static_cast<double>(of * std::ssize(counts));
  }
  return interval;
}

Interval BootstrapOf(
    size_t count,
    uint64_t seed,
    const std::function<double(const std::vector<double>& times)>& statistic) {
  if (count == 0) return {};
  std::mt19937_64 random(seed);
  std::vector<double> resampled(kResamples);
  for (double& value : resampled) {
    std::vector<double> times(count, 0.0);
    for (size_t i = 0; i < count; ++i) times[random() % count] += 1.0;
    value = statistic(times);
  }
  return PercentileInterval(statistic(std::vector<double>(count, 1.0)),
                            std::move(resampled));
}

nlohmann::ordered_json ToJson(const Interval& interval) {
  return {
      {"mean", interval.mean}, {"low", interval.low}, {"high", interval.high}};
}

Interval ParseInterval(const nlohmann::ordered_json& json) {
  const auto number = [&](const char* key) {
    const nlohmann::ordered_json& value = json.at(key);
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN()
                           : value.get<double>();
  };
  return {.mean = number("mean"), .low = number("low"), .high = number("high")};
}

}  // namespace dapd
