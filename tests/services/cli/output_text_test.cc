#include "services/cli/output_text.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(OutputWarningsTest, FoldersThatCanBeMadeAreNotMade) {
  Config config;
  config.run.name = "mine";
  config.run.output_dir = TempPath("deep/runs");
  config.checkpoint.copy_to = TempPath("copies");
  EXPECT_THAT(OutputWarnings(config), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(TempPath("deep")));
  config.run.output_dir = "runs";
  config.checkpoint.copy_to = "s3://bucket/runs";
  EXPECT_THAT(OutputWarnings(config), IsEmpty());
}

TEST(OutputWarningsTest, FoldersThatCannotBeMadeAreNamedWithTheReason) {
  Config config;
  config.run.name = "mine";
  const std::string file = TempPath("file");
  ASSERT_TRUE(WriteFileAtomically(file, "x").ok());
  config.run.output_dir = JoinPath(file, "runs");
  config.checkpoint.copy_to = file;
  EXPECT_THAT(OutputWarnings(config),
              ElementsAre(HasSubstr("run.output_dir: " + file + "/runs/mine"),
                          HasSubstr("checkpoint.copy_to: " + file + "/mine")));
  EXPECT_THAT(OutputWarnings(config)[0], HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace dapd
