#include "common/terms/weight_set.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(WeightSetTest, EveryNameIsReadAsItsSet) {
  for (int i = 0; i < kNumWeightSets; ++i) {
    const auto set = static_cast<WeightSet>(i);
    EXPECT_EQ(ParseWeightSet(WeightSetName(set)), set);
  }
  EXPECT_EQ(ParseWeightSet("ema"), WeightSet::kEma);
}

TEST(WeightSetTest, AnUnknownNameIsNoSet) {
  EXPECT_EQ(ParseWeightSet("newest"), std::nullopt);
  EXPECT_EQ(WeightSetNames(), "base, snapshot, ema, live");
}

}  // namespace
}  // namespace dapd
