// The text of a loss, a divergence, a probability or a gradient's norm.
#pragma once

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/data/confidence_interval.h"

namespace dapd {

// Returns "0.5000", or "4.123e-05" if four decimals would show nothing of it.
inline std::string LossText(double value) {
  constexpr double kLeastWithDecimals = 1e-3;
  const bool is_small = value != 0 && std::abs(value) < kLeastWithDecimals;
  return is_small ? absl::StrFormat("%.4g", value)
                  : absl::StrFormat("%.4f", value);
}

// Returns "0.5000 [0.4000, 0.6000]".
inline std::string LossText(const Interval& interval) {
  return absl::StrCat(LossText(interval.mean),
                      " [",
                      LossText(interval.low),
                      ", ",
                      LossText(interval.high),
                      "]");
}

}  // namespace dapd
