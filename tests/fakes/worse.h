// The worse of two errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace dapd {

// Nothing is farther off than what is no number; std::max passes over a NaN
// that comes second.
inline double NanIsInfinity(double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

inline double Worse(double worst, double error) {
  return std::max(worst, NanIsInfinity(error));
}

}  // namespace dapd
