// The named sets of frozen weights that a teacher's pass can be read with. The
// configuration, the wire and the metrics use the names of this table.
#pragma once

#include <optional>
#include <string>

namespace dapd {

enum class WeightSet {
  kBase,      // the model with the adapter off
  kSnapshot,  // the periodic copy of the adapter
  kEma,       // the exponential moving average of the adapter
  kLive,      // the adapter that is trained, without gradient
};
inline constexpr int kNumWeightSets = 4;

// "base", "snapshot", "ema" or "live".
const char* WeightSetName(WeightSet set);
// Nothing for an unknown name.
std::optional<WeightSet> ParseWeightSet(const std::string& name);
// All names, for messages.
std::string WeightSetNames();

}  // namespace dapd
