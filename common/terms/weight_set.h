// Names the sets of frozen weights with which a teacher's pass can be computed.
// The configuration, messages and metrics use the names of this table.
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

// Returns "base", "snapshot", "ema" or "live".
const char* WeightSetName(WeightSet set);
// Returns nothing for an unknown name.
std::optional<WeightSet> ParseWeightSet(const std::string& name);
// Returns all names, for messages.
std::string WeightSetNames();

}  // namespace dapd
