#include "common/terms/weight_set.h"

#include <array>

#include "absl/strings/str_join.h"

namespace dapd {
namespace {

// The names are indexed by WeightSet.
constexpr std::array<const char*, kNumWeightSets> kWeightSetNames = {
    "base", "snapshot", "ema", "live"};

}  // namespace

const char* WeightSetName(WeightSet set) {
  return kWeightSetNames[static_cast<size_t>(set)];
}

std::optional<WeightSet> ParseWeightSet(const std::string& name) {
  for (size_t i = 0; i < kWeightSetNames.size(); ++i) {
    if (name == kWeightSetNames[i]) return static_cast<WeightSet>(i);
  }
  return std::nullopt;
}

std::string WeightSetNames() { return absl::StrJoin(kWeightSetNames, ", "); }

}  // namespace dapd
