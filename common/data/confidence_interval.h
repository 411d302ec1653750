// A mean with its 95 % confidence interval.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace dapd {

struct Interval {
  double mean = 0.0;
  double low = 0.0;
  double high = 0.0;
};

// Of independent values in [0, 1] or beyond, such as a problem's share of
// correct answers: Student's t over the values. Where all values are 0 or all
// are 1 that interval would have no width; then it is Wilson's score interval
// for that many trials. No values: all zero.
Interval MeanInterval(const std::vector<double>& values);

// {"mean", "low", "high"}
nlohmann::ordered_json ToJson(const Interval& interval);

// The 97.5 % quantile of Student's t distribution.
double StudentQuantile975(int degrees_of_freedom);

}  // namespace dapd
