// Computes means with their 95 % confidence intervals.
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

// Returns the interval of the mean of independent values, such as the
// divergence of each problem or the accuracy of each run, by Student's t
// distribution. It may reach beyond the range of the values, and has no width
// where all values are equal. Without values all fields are zero.
Interval MeanInterval(const std::vector<double>& values);

// Returns Wilson's score interval (1927) of share * count successes in count
// trials. It stays within [0, 1], and has a width even where no trial or every
// trial is a success.
Interval WilsonInterval(double share, double count);

// The resamples of all evaluations have this seed, in a run and in `dapd eval`,
// so that the same answers have the same intervals.
inline constexpr uint64_t kEvaluationSeed = 20260801;

// Returns the percentile bootstrap (Efron 1979) of the mean of independent
// values, such as the mean length of each problem's answers: the middle 95 % of
// the means of 10,000 samples, each of `values.size()` values drawn with
// replacement. The result depends on the values and the seed only. Calls with
// the same seed and the same number of values make the same draws, so that
// several measures of the same problems vary together. Without values all
// fields are zero.
Interval BootstrapMean(const std::vector<double>& values, uint64_t seed);

// Returns the BootstrapMean of shares, such as the pass@k of each problem.
// Where all shares are equal, the bootstrap's interval would have no width, and
// a single problem would seem to settle everything; the interval is Wilson's
// there.
Interval BootstrapInterval(const std::vector<double>& values, uint64_t seed);

// Returns the BootstrapInterval of the shares counts[i] / of, where counts[i]
// is, for example, the number of right answers to problem i. The mean is the
// share of all problems together, rounded once: two results with the same
// number of right answers have equal means, whichever answers are right.
Interval BootstrapShares(const std::vector<int64_t>& counts,
                         int64_t of,
                         uint64_t seed);

// Returns the bootstrap of any statistic of `count` independent observations.
// `statistic` gets how often each observation was drawn, and must be finite if
// at least one was drawn. `mean` is the statistic with every observation drawn
// once. The draws are BootstrapMean's. Without observations all fields are
// zero.
Interval BootstrapOf(
    size_t count,
    uint64_t seed,
    const std::function<double(const std::vector<double>& times)>& statistic);

// Returns {"mean", "low", "high"}.
nlohmann::ordered_json ToJson(const Interval& interval);
// Parses ToJson's result, in which null stands for a number that is not finite
// and becomes NaN. Throws nlohmann's exceptions for anything else.
Interval ParseInterval(const nlohmann::ordered_json& json);

// Returns the 97.5 % quantile of Student's t distribution.
double StudentQuantile975(int degrees_of_freedom);

}  // namespace dapd
