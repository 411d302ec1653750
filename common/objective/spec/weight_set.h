// The named sets of frozen weights that a teacher's pass can be read with.
#pragma once

#include <optional>
#include <string>

namespace dapd {

enum class WeightSet {
  kBase,      // the model with the adapter off
  kSnapshot,  // the periodic copy of the adapter
};

// "base", "snapshot".
const char* WeightSetName(WeightSet set);
// Nothing for an unknown name.
std::optional<WeightSet> ParseWeightSet(const std::string& name);
// All names, for messages.
std::string WeightSetNames();

}  // namespace dapd
