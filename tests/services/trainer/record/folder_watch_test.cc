#include "services/trainer/record/folder_watch.h"

#include <filesystem>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

class FolderWatchTest : public testing::Test {
 protected:
  FolderWatchTest() { fs::create_directories(folder_); }

  const fs::path parent_ = TempPath("runs");
  const fs::path folder_ = parent_ / "mine";
};

TEST_F(FolderWatchTest, AFolderThatIsThereIsThere) {
  const FolderWatch watch(folder_);
  EXPECT_TRUE(watch.Check().ok());
  ASSERT_TRUE(WriteFileAtomically(folder_ / "file", "text").ok());
  EXPECT_TRUE(watch.Check().ok());
}

TEST_F(FolderWatchTest, OneThatIsRemovedIsGoneWithAllAboveIt) {
  for (const fs::path& removed : {folder_, parent_}) {
    fs::create_directories(folder_);
    const FolderWatch watch(folder_);
    fs::remove_all(removed);
    EXPECT_EQ(ExitCodeOf(watch.Check()), ExitCode::kRunLost) << removed;
  }
}

TEST_F(FolderWatchTest, OneThatIsRenamedIsGoneAlsoWhereAnotherTakesItsPlace) {
  const FolderWatch watch(folder_);
  fs::rename(folder_, parent_ / "elsewhere");
  EXPECT_EQ(ExitCodeOf(watch.Check()), ExitCode::kRunLost);
  fs::create_directories(folder_);
  EXPECT_EQ(ExitCodeOf(watch.Check()), ExitCode::kRunLost);
}

// A file system that is not mounted may come back.
TEST_F(FolderWatchTest, OneThatIsOutOfSightIsNotGone) {
  const FolderWatch watch("/proc/self/task");
  EXPECT_TRUE(watch.Check().ok());
  const FolderWatch never(folder_ / "missing");
  EXPECT_TRUE(never.Check().ok());
}

}  // namespace
}  // namespace dapd
