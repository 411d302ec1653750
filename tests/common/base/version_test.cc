#include "common/base/version.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

// The commit is known because tests are built in a checkout.
TEST(VersionTest, SaysReleaseAndCommit) {
  EXPECT_THAT(
      std::string(Version()),
      testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+-.*[0-9a-f]{7}.*"));
}

}  // namespace
}  // namespace dapd
