#include "services/cli/version_text.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/flavour.h"
#include "common/base/version.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(VersionTextTest, SaysCommitFlavourAndKernelsBelowTheVersion) {
  const std::vector<std::string> lines = absl::StrSplit(VersionText(), '\n');
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[0], Version());
  EXPECT_THAT(lines[1], StartsWith("commit   "));
  EXPECT_THAT(lines[0], HasSubstr(Commit()));
  EXPECT_EQ(lines[2], std::string("flavour  ") + Flavour());
  EXPECT_THAT(lines[3], StartsWith("kernels  CPU: "));
}

TEST(VersionTextTest, NoKernelsForGpusAreClaimedWithoutTheirLibrary) {
  const bool has_library = !CudaLibraryPath().empty();
  EXPECT_EQ(VersionText().find("GPU") != std::string::npos, has_library);
}

}  // namespace
}  // namespace dapd
