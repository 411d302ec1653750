#include "common/base/random_name.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(RandomNameTest, EachIsAnother) {
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) names.insert(RandomName());
  EXPECT_EQ(names.size(), 100U);
  EXPECT_THAT(names, testing::Each(testing::MatchesRegex("[0-9a-f]{32}")));
}

}  // namespace
}  // namespace dapd
