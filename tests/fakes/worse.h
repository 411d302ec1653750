// Finds the worse of two errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace dapd {

// A NaN is the worst error; std::max ignores a NaN in its second argument.
inline double NanIsInfinity(double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

inline double Worse(double worst, double error) {
  return std::max(worst, NanIsInfinity(error));
}

}  // namespace dapd
