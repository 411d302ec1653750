// A loss, a divergence or a gradient's norm, for a reader.
#pragma once

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"

namespace dapd {

// "0.5000"; "4.123e-05" where four decimals would leave nothing of it.
inline std::string LossText(double value) {
  constexpr double kLeastWithDecimals = 1e-3;
  const bool is_small = value != 0 && std::abs(value) < kLeastWithDecimals;
  return is_small ? absl::StrFormat("%.4g", value)
                  : absl::StrFormat("%.4f", value);
}

}  // namespace dapd
