// Names the sets of frozen weights with which a teacher's pass can be computed.
// The configuration, messages and metrics use the names of this table.
#pragma once

#include "common/base/enum_names.h"

namespace dapd {

enum class WeightSet {
  kBase,      // the model with the adapter off
  kSnapshot,  // the periodic copy of the adapter
  kEma,       // the exponential moving average of the adapter
  kLive,      // the adapter that is trained, without gradient
};
constexpr auto NameTable(WeightSet) {
  return std::array{"base", "snapshot", "ema", "live"};
}

}  // namespace dapd
