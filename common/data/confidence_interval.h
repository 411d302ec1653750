// A mean with its 95 % confidence interval.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace dapd {

struct Interval {
  double mean = 0.0;
  double low = 0.0;
  double high = 0.0;
};

// Of independent values, such as a problem's divergence or a run's accuracy:
// Student's t over the values, which may reach beyond what they can be, and has
// no width where they agree. No values: all zero.
Interval MeanInterval(const std::vector<double>& values);

// Wilson's score interval (1927) of share * count successes in count trials: it
// has a width, and does not leave [0, 1], where they are none or all.
Interval WilsonInterval(double share, double count);

// Seed of the resamples of all evaluations, within a run and of `dapd eval`:
// the same answers have the same intervals.
inline constexpr uint64_t kEvaluationSeed = 20260801;

// The percentile bootstrap (Efron 1979) of the mean of independent values, such
// as the mean length of a problem's answers: the middle 95 % of the means of
// 10,000 samples of as many values, drawn with replacement. A function of
// values and seed; with the same seed and number of values the same draws, so
// that several measures of the same problems vary together. No values: all
// zero.
Interval BootstrapMean(const std::vector<double>& values, uint64_t seed);

// The same of shares, such as a problem's pass@k. Where all of them are the
// same it would have no width, and a single problem would seem to settle
// everything: it is Wilson's interval then.
Interval BootstrapInterval(const std::vector<double>& values, uint64_t seed);

// The same of the shares that each of `counts`, such as a problem's right
// answers, is of `of`. The mean is that of all of them together, rounded once:
// two means are equal where as many answers are right, whichever they are.
Interval BootstrapShares(const std::vector<int64_t>& counts,
                         int64_t of,
                         uint64_t seed);

// The same for any statistic of `count` independent observations:
// `statistic` gets how often each was drawn, and must be finite wherever
// something was. `mean` is the statistic of all observations, once each. The
// draws are BootstrapMean's.
// No observations: all zero.
Interval BootstrapOf(
    size_t count,
    uint64_t seed,
    const std::function<double(const std::vector<double>& times)>& statistic);

// {"mean", "low", "high"}
nlohmann::ordered_json ToJson(const Interval& interval);

// The 97.5 % quantile of Student's t distribution.
double StudentQuantile975(int degrees_of_freedom);

}  // namespace dapd
