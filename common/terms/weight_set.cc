#include "common/terms/weight_set.h"

#include <array>

#include "absl/strings/str_join.h"

namespace dapd {
namespace {

// By WeightSet.
constexpr std::array<const char*, kNumWeightSets> kNames = {
    "base", "snapshot", "ema", "live"};

}  // namespace

const char* WeightSetName(WeightSet set) {
  return kNames[static_cast<size_t>(set)];
}

std::optional<WeightSet> ParseWeightSet(const std::string& name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<WeightSet>(i);
  }
  return std::nullopt;
}

std::string WeightSetNames() { return absl::StrJoin(kNames, ", "); }

}  // namespace dapd
