#include "services/trainer/step/sampled_prefixes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SampledPrefixesTest, APrefixIsThePromptAndGrowsByTheStride) {
  SampledPrefixes prefixes(2);
  prefixes.Begin(1, {7, 8});
  EXPECT_THAT(prefixes.Of(1), ElementsAre(7, 8));
  prefixes.Grow(1, {20});
  EXPECT_THAT(prefixes.Of(1), ElementsAre(7, 8));
  prefixes.Grow(1, {20, 21, 22});
  EXPECT_THAT(prefixes.Of(1), ElementsAre(7, 8, 20, 21, 22));
  prefixes.Grow(1, {20, 21, 22, 23});
  EXPECT_THAT(prefixes.Of(1), ElementsAre(7, 8, 20, 21, 22));
}

TEST(SampledPrefixesTest, AWorkerThatTookTheTaskOverTakesNothingBack) {
  SampledPrefixes prefixes(1);
  prefixes.Begin(1, {7});
  prefixes.Grow(1, {20, 21});
  prefixes.Grow(1, {20});
  EXPECT_THAT(prefixes.Of(1), ElementsAre(7, 20, 21));
  prefixes.Grow(1, {20, 21, 22});
  EXPECT_THAT(prefixes.Of(1), ElementsAre(7, 20, 21, 22));
}

TEST(SampledPrefixesTest, OfAnAnswerThatIsNotSampledNothingIsKnown) {
  SampledPrefixes prefixes(1);
  prefixes.Grow(1, {20});
  EXPECT_THAT(prefixes.Of(1), IsEmpty());
  prefixes.Begin(1, {7});
  prefixes.Begin(2, {8});
  prefixes.Begin(3, {9});
  prefixes.End(1);
  prefixes.Grow(1, {20});
  EXPECT_THAT(prefixes.Of(1), IsEmpty());
  EXPECT_THAT(prefixes.Of(2), ElementsAre(8));
  prefixes.EndAll();
  EXPECT_THAT(prefixes.Of(2), IsEmpty());
  EXPECT_THAT(prefixes.Of(3), IsEmpty());
}

}  // namespace
}  // namespace dapd
